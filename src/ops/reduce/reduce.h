#pragma once

#include "ops/graph.h"

namespace rullama {

// y[j] = sum_r x[r * m + j] where `shape` has m elements: the gradient of something that was repeated.
// x: F32 with a multiple of m elements. Returns F32 of `shape`.
[[nodiscard]] Var sum_repeats(Var x, const Shape& shape);

// sum_i (s x_i)^2: F32 [1]. For gradient norms: s undoes a loss scale before squaring.
[[nodiscard]] Var sum_squares(Var x, float s = 1);

}  // namespace rullama
