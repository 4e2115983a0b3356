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

}  // namespace rullama
