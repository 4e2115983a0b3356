// Softmax attention: out[i, h] = sum_t p_t v[t, g], p = softmax over the visible t of scale * q[i, h] . k[t, g],
// g = h / (H / Hkv).
//
// q: F32 [T, H, D]; k, v: [C, Hkv, D], F32 or F16 states, or F32 activations; H a multiple of Hkv; D at most 512 (F16:
// a multiple of 4). Returns F32 [T, H, D]. A row that sees nothing gives zeros. Softmax is streamed: no [T, C] matrix
// is stored.
#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

struct AttentionOptions {
  float scale = 1;
  std::uint32_t window = 0;  // positions that a row sees, itself included; 0: all
};

// Causal: row i at position p = positions[i] sees t in [max(0, first[i], p - window + 1), p].
// positions: U32 [T], consecutive. The key of position t lies in slot t % C: C must hold what the rows see and the rows
// themselves. first: U32 [T] or an invalid Var: the earliest position each row may see, for sequences packed into one
// run. Differentiable where k and v are activations of as many rows as q, with positions 0 .. T-1.
[[nodiscard]] Var attention(Var q, Var k, Var v, Var positions, const AttentionOptions& options, Var first = {});

// The probabilities alone: F32 [T, H, C] over the slots; a masked entry is exactly 0.
[[nodiscard]] Var attention_probabilities(Var q, Var k, Var positions, const AttentionOptions& options, Var first = {});

// Every row sees all C keys (image patches, embedding models); window > 0: keys t with |t - i| < window only.
[[nodiscard]] Var bidirectional_attention(Var q, Var k, Var v, const AttentionOptions& options);

// Prompt and canvas of block diffusion. Rows below position P = prompt[0] are causal as above. Canvas rows, from P on,
// see the whole canvas up to the last row's position and, with a window, only the last window - 1 positions of the
// prompt. positions: U32 [T], consecutive; prompt: U32 [1].
[[nodiscard]] Var region_attention(Var q, Var k, Var v, Var positions, Var prompt, const AttentionOptions& options);

}  // namespace rullama
