#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// The k largest values of each row and where they stand, the largest first, equals by place. Values that are no finite
// numbers come before all others, as NaN, so that nobody takes the rest for a result; -0 counts as 0.
// x: F32 [..., n]; k from 1 to kMostBest and at most n. Returns U32 [rows, k, 2]: a value's bits and its place, in one
// tensor because fetching a tensor from a GPU costs more than a pass over it. No derivative.
inline constexpr std::uint32_t kMostBest = 256;
[[nodiscard]] Var top_k(Var x, std::uint32_t k);

}  // namespace rullama
