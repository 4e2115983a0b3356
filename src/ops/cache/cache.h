#pragma once

#include "ops/graph.h"

namespace rullama {

// Writes row t of x into slot positions[t] % C of the cache, in place. Rows of one run must have different slots: T <=
// C. cache: a state, F32 or F16 [C, Hkv, D] (F16: D even; values beyond +-65504 are clamped); x: F32 [T, Hkv, D];
// positions: U32 [T].
void cache_write(Var cache, Var x, Var positions);

}  // namespace rullama
