#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// y_i = x_i / (1 - rate) with probability 1 - rate, else 0. Which elements stay follows from (seed, stream, i) alone:
// the derivative, and a second computation of the same values, meet the same mask on every device. x: F32; seed: U32
// [1], new for each step; stream tells the uses within a step apart; 0 <= rate < 1. Returns F32 like x. Source:
// Srivastava et al. 2014, "Dropout".
[[nodiscard]] Var dropout(Var x, Var seed, std::uint32_t stream, float rate);

}  // namespace rullama
