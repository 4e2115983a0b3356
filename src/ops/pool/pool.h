#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// Means of k x k squares that do not overlap; rows and columns that fill no square are dropped.
// x: F32 [H, W, C], the channel last; k at least 1. Returns F32 [H / k, W / k, C].
[[nodiscard]] Var average_pool(Var x, std::uint32_t k);

// Means of 2 x 2 squares, the channel first; an odd width has its last column twice.
// x: F32 [C, H, W], H even. Returns F32 [C, H / 2, (W + 1) / 2].
[[nodiscard]] Var average_pool_2x2(Var x);

}  // namespace rullama
