#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// state[first + i] = keep * state[first + i] + x[i], in place: sums that outlive a run, such as gradients of several
// batches. state: a state, F32; x: F32, of which all elements fit behind `first`; keep: F32 [1].
void accumulate(Var state, Var x, Var keep, std::uint64_t first = 0);

}  // namespace rullama
