#pragma once

#include "ops/graph.h"

namespace rullama {

// y = x / sqrt(mean(x^2) + eps) * w over the last dimension, each row by itself.
// x: F32 [..., n]; w: F32 [n] or an invalid Var (then 1); eps > 0. Returns F32 like x.
// Source: Zhang and Sennrich 2019, "Root Mean Square Layer Normalization".
[[nodiscard]] Var rms_norm(Var x, Var w, float eps);

// Its gradient for x, w frozen: dx_j = w_j dy_j / r - x_j S / (n r^3), r = sqrt(mean(x^2) + eps),
// S = sum_i dy_i w_i x_i.
[[nodiscard]] Var rms_norm_backward(Var x, Var w, Var dy, float eps);

// The step between two blocks of a residual stream in one kernel:
//   sum = (residual + rms_norm(x, w)) * scale,  normed = rms_norm(sum, w_next).
// residual, x: F32 [..., n] alike; w, w_next: F32 [n]; scale: F32 [1] or an invalid Var (then 1).
struct ResidualNorm {
  Var sum, normed;
};
[[nodiscard]] ResidualNorm residual_norm(Var residual, Var x, Var w, Var w_next, float eps, Var scale = {});

}  // namespace rullama
