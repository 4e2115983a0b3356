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

// A step of a residual stream and a product with what it gives, in one kernel where that pays:
//   sum = (residual + rms_norm(x, w)) * scale,  input = rms_norm(sum, w_next), or sum if there is no w_next.
// residual, x: F32 [rows, k] alike; w, w_next: F32 [k]; scale: F32 [1] or an invalid Var (then 1). No derivative.
struct ResidualStep {
  Var residual, x, w, w_next = {}, scale = {};
  float eps = 1e-6f;
};
struct ResidualProduct {
  Var sum, y;
};
// y = matmul_concat(input, weights)
[[nodiscard]] ResidualProduct residual_concat(const ResidualStep& step, std::span<const Var> weights);
// y = gated_matmul(input, gate, up)
[[nodiscard]] ResidualProduct residual_gated(const ResidualStep& step, Var gate, Var up);
// y = gelu(matmul(input, weight)) * factor[:, column : column + n]
[[nodiscard]] ResidualProduct residual_gelu(const ResidualStep& step, Var weight, Var factor, std::uint32_t column);

// dx[..., i] = scale * sum_j dy[..., j] w[row0 + j, i] + plus: the gradient of matmul for its x.
// dy: F32 [..., row1 - row0]; w as above. Returns F32 [..., k]; zeros (or plus) where the range is empty.
[[nodiscard]] Var matmul_transposed(Var dy, Var w, const ProductOptions& options = {});

// o[i, j] = scale * sum_t a[t, i] b[t, j] + plus: the gradient of an F32 weight, outer_sum(dy, x).
// a: F32 [..., A]; b: F32 [..., B], as many rows. Returns F32 [A, B]. `row0` and `row1` are not used.
[[nodiscard]] Var outer_sum(Var a, Var b, const ProductOptions& options = {});

}  // namespace rullama
