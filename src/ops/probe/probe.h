// Two ops without a use but to find out what a device can do: how fast it reads memory, how fast it multiplies.
#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// Reads x (F32, a multiple of 4 elements) once and returns a few sums of it.
[[nodiscard]] Var read_probe(Var x);

// Chains of f32 fused multiply-adds in registers, `steps` times 32 in each lane; x: F32 [lanes], 256 at least and a
// multiple of it. Returns F32 [lanes]. Op::cost says how many operations that is.
[[nodiscard]] Var fma_probe(Var x, std::uint32_t steps);

}  // namespace rullama
