// Sums of many values to few. x is F32; the results are F32.
#pragma once

#include "ops/graph.h"

namespace rullama {

// y[j] = sum_r x[r * m + j] where `shape` has m elements: the gradient of something that was repeated.
// x: a multiple of m elements. Returns `shape`.
[[nodiscard]] Var sum_repeats(Var x, const Shape& shape);

// y[j] = sum_r x[j * n + r] where `shape` has m elements and x has m * n: the sum of each row.
[[nodiscard]] Var sum_rows(Var x, const Shape& shape);

// sum_i (s x_i)^2: F32 [1]. For gradient norms: s undoes a loss scale before squaring.
[[nodiscard]] Var sum_squares(Var x, float s = 1);

}  // namespace rullama
