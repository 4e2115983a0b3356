#pragma once

#include <cstdint>

#include "ops/rope/rope.h"

namespace rullama {

struct HeadOptions {
  std::uint32_t n_heads = 0, n_kv_heads = 0;
  RopeOptions turn;
  float eps = 1e-6f;
  bool value_norm = false;  // values get an RMS norm without weight
};

struct HeadInputs {
  Var projected = {};  // F32 [T, (n_heads + c n_kv_heads) D]: queries, then keys, then values. c = 2; 1: the keys'
                       // projections serve as values; 0: the layer has no keys and values of its own
  Var q_norm = {}, k_norm = {};    // F32 [D]; k_norm only with keys
  Var positions = {};              // U32 [T]
  Var factors = {};                // of the rotary frequencies, F32 [rotated / 2] or invalid (all 1)
  Var cache_k = {}, cache_v = {};  // states, F32 or F16 [C, n_kv_heads, D], only with keys
};

// What lies between the projections of an attention layer and its attention, in one kernel: RMS norm of queries and
// keys, rotary positions, and keys and values to slot positions[t] % C of their cache, in place (rms_norm.h, rope.h,
// cache.h). Returns the queries, F32 [T, n_heads, D]. D even; T <= C.
[[nodiscard]] Var heads_to_cache(const HeadInputs& in, const HeadOptions& options);

}  // namespace rullama
