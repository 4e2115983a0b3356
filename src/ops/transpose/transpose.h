// Changes of layout. All F32, all copies.
#pragma once

#include "ops/graph.h"

namespace rullama {

// y[c, r] = x[r, c]. x: [R, C]. Returns [C, R].
[[nodiscard]] Var transpose(Var x);

// y[b, a, ...] = x[a, b, ...]: tokens and heads change places. x: [T, H, D]. Returns [H, T, D].
[[nodiscard]] Var swap_heads(Var x);

// y[c, f t + i] = x[c, t] for 0 <= i < factor. x: [C, T]. Returns [C, factor T].
[[nodiscard]] Var upsample(Var x, std::uint32_t factor = 2);

}  // namespace rullama
