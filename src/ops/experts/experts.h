// Sparse mixture of experts. The choice of experts stays on the device.
#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

struct Routed {
  Var ids;      // U32 [T, k]: the chosen experts, best first
  Var weights;  // F32 [T, k]: their shares, which add up to 1
};

// The router: h = x / sqrt(mean(x^2) + eps) * scale / sqrt(D), scores = router_w h, softmax over all E experts, the k
// largest (of equal ones the lower id first), their probabilities divided by their sum.
// x: F32 [T, D]; router_w: [E, D]; scale: F32 [D] or invalid (1); E at most 256, k at most 16 and at most E.
[[nodiscard]] Routed route(Var x, Var router_w, Var scale, float eps, std::uint32_t k);

// The last step of `route`, from scores F32 [T, E].
[[nodiscard]] Routed choose_experts(Var scores, std::uint32_t k);

// y[t, s, :] = w[ids[t, s]] x[t] (x: F32 [T, k]) or w[ids[t, s]] x[t, s] (x: F32 [T, slots, k]); zeros where the id is
// not an expert. w: [E, n, k] of any type but U32; ids: U32 [T, slots]. Returns F32 [T, slots, n].
// Derivative: for x; the weights are frozen.
[[nodiscard]] Var expert_matmul(Var x, Var w, Var ids);

// y[t, s, :] = gelu(gate x) * (up x), where w[ids[t, s]] holds the rows of `gate` and then as many of `up`:
// geglu_halves of expert_matmul, in one kernel where it can be. w: [E, 2n, k]. Returns F32 [T, slots, n]. Derivative:
// for x (makes the product again).
[[nodiscard]] Var expert_gated_matmul(Var x, Var w, Var ids);

// The gradient of expert_matmul for its x. dy: F32 [T, slots, n]. Returns F32 [T, slots, k], or [T, k] with the slots
// added up if `shared` (x was the same for all slots).
[[nodiscard]] Var expert_matmul_transposed(Var dy, Var w, Var ids, bool shared);

// y[t] = sum_s weights[t, s] * dscale[ids[t, s]] * slots[t, s].
// slots: F32 [T, S, n]; ids: U32 [T, S]; weights: F32 [T, S]; dscale: F32 [E] or invalid (1). Returns F32 [T, n].
// Derivative: for slots and weights.
[[nodiscard]] Var expert_combine(Var slots, Var ids, Var weights, Var dscale);

}  // namespace rullama
