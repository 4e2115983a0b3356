#pragma once

#include <cstdint>
#include <span>

#include "ops/graph.h"

namespace rullama {

// What the three products share. Their names say what is multiplied; `plus` and `scale` make them the steps of a
// low-rank adapter: y + s B (A x) is matmul(matmul(x, A), B, {.scale = s, .plus = y}).
struct ProductOptions {
  float scale = 1;  // of the product
  Var plus = {};    // added to the scaled product: F32 of the result's shape; invalid: nothing
  // Only rows [row0, row1) of w, a tile of a vocabulary.
  std::uint64_t row0 = 0, row1 = kAllRows;
  static constexpr std::uint64_t kAllRows = UINT64_MAX;
};

// y[..., j] = scale * sum_i x[..., i] w[row0 + j, i] + plus.
// x: F32 [..., k]; w: [n, k] of any type but U32 (F32 may be an activation). Returns F32 [..., row1 - row0].
// Derivative: for x, plus, and for w if it is F32 and whole.
[[nodiscard]] Var matmul(Var x, Var w, const ProductOptions& options = {});

// Several products with one input, side by side: y = [x w0^T | x w1^T | ...].
// x: F32 [..., k]; weights: each [n_i, k] of any type but U32. Returns F32 [..., sum of n_i]. Derivative: for x.
[[nodiscard]] Var matmul_concat(Var x, std::span<const Var> weights);

// y = gelu(x gate^T) * (x up^T), a gated feed-forward layer up to its last product; gelu in its tanh form.
// x: F32 [..., k]; gate, up: [n, k] of any type but U32. Returns F32 [..., n]. Derivative: for x (makes both products
// again).
[[nodiscard]] Var gated_matmul(Var x, Var gate, Var up);

// dx[..., i] = scale * sum_j dy[..., j] w[row0 + j, i] + plus: the gradient of matmul for its x.
// dy: F32 [..., row1 - row0]; w as above. Returns F32 [..., k]; zeros (or plus) where the range is empty.
[[nodiscard]] Var matmul_transposed(Var dy, Var w, const ProductOptions& options = {});

// o[i, j] = scale * sum_t a[t, i] b[t, j] + plus: the gradient of an F32 weight, outer_sum(dy, x).
// a: F32 [..., A]; b: F32 [..., B], as many rows. Returns F32 [A, B]. `row0` and `row1` are not used.
[[nodiscard]] Var outer_sum(Var a, Var b, const ProductOptions& options = {});

}  // namespace rullama
