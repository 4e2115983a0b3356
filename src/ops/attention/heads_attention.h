// What lies between the projections of a layer and its attention, and that attention (ops/heads/heads.h, attention.h).
#pragma once

#include "ops/attention/attention.h"
#include "ops/heads/heads.h"

namespace rullama {

// attention(heads_to_cache(in), k, v, in.positions): the same kernel for one row where a GPU's subgroups allow. k, v:
// the caches that are read, in.cache_k and in.cache_v where the layer has its own. Returns F32 [T, n_heads, D]; with w
// [n, n_heads D] the product of its rows with w^T, F32 [T, n], which may put together what attention leaves in parts.
[[nodiscard]] Var heads_attention(const HeadInputs& in, const HeadOptions& heads, Var k, Var v,
                                  const AttentionOptions& attention, Var w = {});

}  // namespace rullama
