#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

struct LocalAttentionOptions {
  std::uint32_t past = 0, future = 0;  // keys that a row sees before and after itself
  float cap = 0;                       // of scores: cap tanh(s / cap); 0: none
};

// Attention of sequences (audio) whose rows see their neighbours, with learnt terms for distances:
//   s = q[t, h] . k[u, h] + q[t, h] . relative[t - u, h]   for t - past <= u <= t + future within the sequence,
//   y[t, h] = sum_u softmax(cap tanh(s / cap)) v[u, h].
// A distance that is no row of `relative`, also a negative one, has no term. Computing it in chunks of queries, as
// models often describe it, gives the same. q, k, v: F32 [T, H, D]; relative: F32 [R, H, D]. Returns F32 [T, H, D].
// Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations"; Dai et al. 2019, "Transformer-XL".
[[nodiscard]] Var local_attention(Var q, Var k, Var v, Var relative, const LocalAttentionOptions& options);

}  // namespace rullama
