// The forward pass of Gemma 3 and Gemma 4 text models, written once: prompt processing, decoding and training are this
// function with other row counts and another source of keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "models/gemma/config.h"
#include "models/gemma/weights.h"
#include "ops/graph.h"

namespace rullama {

// Keys and values of earlier positions, one pair of tensors for each layer that has its own.
// Global layers hold `context` positions, sliding layers a ring of the window and one batch.
struct KvCache {
  struct Layer {
    TensorPtr k, v;  // [slots, n_kv_heads, head_dim]
  };
  std::vector<Layer> layers;  // empty pairs on layers that read another layer's
  std::uint32_t context = 0;  // positions that fit
  std::uint32_t batch = 0;    // most rows of one run
  std::uint64_t bytes = 0;
};

// `dtype` is F16 or F32.
[[nodiscard]] Result<KvCache> make_kv_cache(const GemmaConfig& config, Backend& backend, std::uint32_t context,
                                            std::uint32_t batch, DType dtype);
[[nodiscard]] std::uint64_t kv_cache_bytes(const GemmaConfig& config, std::uint32_t context, std::uint32_t batch,
                                           DType dtype);

// The linear maps of a layer that can carry an adapter, by PEFT's names.
enum class Target : std::uint8_t {
  q,
  k,
  v,
  o,
  gate,
  up,
  down,
  per_layer_gate,
  per_layer_proj,
  per_layer_model,
  lm_head,
  embed_tokens
};

// Given a linear map's input and plain product, returns what replaces the product: an adapter's place. `layer` is 0 for
// the maps that a model has once. For embed_tokens x is the token ids and y their scaled embeddings.
using AdaptLinear = std::function<Var(Target target, std::uint32_t layer, Var x, Var y)>;

struct ForwardInput {
  Var tokens;     // U32 [rows]
  Var positions;  // U32 [rows], consecutive
  Var per_layer;  // F32 [rows, layers * per_layer]: rows of the per-layer table, if it stays on the host
  Var first;      // U32 [rows], optional: earliest position that each row may see (packed sequences)
};

struct ForwardOptions {
  // Null: keys and values live in the graph only (training, scoring without a cache).
  const KvCache* cache = nullptr;
  // Logits are computed for the last `logit_rows` rows; UINT32_MAX: for all; 0: none.
  std::uint32_t logit_rows = 1;
  // False: only `hidden` of these rows is computed, for callers that apply the head in tiles.
  bool head = true;
  AdaptLinear adapt;
  // Sees intermediate results by name: "embed", "per_layer_inputs", "layer3.attn", "layer3.mlp", "layer3.out",
  // "final_norm".
  std::function<void(std::string_view name, Var value)> observe;
};

struct ForwardOutput {
  Var hidden;  // F32 [logit rows, hidden], after the final norm
  Var logits;  // F32 [logit rows, vocab], after the softcap; invalid if logit_rows is 0
};

// Adds the whole pass to `graph`. Errors are in graph.status().
[[nodiscard]] ForwardOutput gemma_forward(Graph& graph, const GemmaConfig& config, const GemmaWeights& weights,
                                          const ForwardInput& input, const ForwardOptions& options);

}  // namespace rullama
