#pragma once

#include "ops/graph.h"

namespace rullama {

// y = (x - mean) / sqrt(var + eps) * gamma + beta over the last dimension; var from centred values.
// x: F32 [..., n]; gamma, beta: F32 [n], or both invalid (then 1 and 0). Returns F32 like x.
// Derivative: for x. Source: Ba et al. 2016, "Layer Normalization".
[[nodiscard]] Var layer_norm(Var x, Var gamma, Var beta, float eps);

// y[c, t] = (1 + gamma_c) (x[c, t] - mean_c) / sqrt(var_c + eps) + beta_c, statistics over t.
// x: F32 [C, T]; gamma, beta: F32 [C]. Returns F32 like x. Derivative: for x.
// Source: Huang and Belongie 2017, "Arbitrary Style Transfer in Real-time with Adaptive Instance Normalization".
[[nodiscard]] Var adain(Var x, Var gamma, Var beta, float eps);

}  // namespace rullama
