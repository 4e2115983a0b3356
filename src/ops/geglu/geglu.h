// Gated units: y = f(gate) * up.
#pragma once

#include "ops/graph.h"

namespace rullama {

// gelu(gate) * up, gelu in its tanh form. gate: F32 [..., n]; up: F32 with as many rows of at least up_column + n
// elements, of which columns [up_column, up_column + n) are read. Returns F32 like gate.
[[nodiscard]] Var geglu(Var gate, Var up, std::uint32_t up_column = 0);

// What gate and up (alike in shape) receive from dy.
struct GegluGradient {
  Var gate, up;
};
[[nodiscard]] GegluGradient geglu_backward(Var gate, Var up, Var dy);

// gelu(u[:, :f]) * u[:, f:]. u: F32 [..., 2f]. Returns F32 [..., f].
[[nodiscard]] Var geglu_halves(Var u);

// gate * sigmoid(1.702 gate) * up.
[[nodiscard]] Var quick_geglu(Var gate, Var up);

// x[:, :d] * sigmoid(x[:, d:]). x: F32 [..., 2d]. Returns F32 [..., d].
[[nodiscard]] Var glu_split(Var x);

}  // namespace rullama
