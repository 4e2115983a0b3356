// The tensors of a Gemma text model: one table says name, shape and when each exists (weights.cpp).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "models/gemma/config.h"
#include "ops/backend.h"

namespace rullama {

using TensorPtr = std::shared_ptr<Tensor>;

struct GemmaLayer {
  TensorPtr attn_norm, q, k, v, q_norm, k_norm, attn_output,
      post_attention_norm;  // k, v, k_norm: own keys and values; v may be absent
  TensorPtr ffn_norm, gate, up, down, post_ffw_norm;
  TensorPtr input_gate, projection, post_norm;  // per-layer embeddings
  TensorPtr output_scale;                       // may be absent: 1
  // mixture of experts, absent in dense layers
  TensorPtr router, router_scale, gate_up_experts, gate_experts, up_experts, down_experts, down_experts_scale;
  TensorPtr pre_ffw_norm_2, post_ffw_norm_1, post_ffw_norm_2;

  [[nodiscard]] bool is_moe() const { return router != nullptr; }
};

struct GemmaWeights {
  TensorPtr token_embd, output, output_norm;  // output: the head, the same tensor as token_embd where tied
  TensorPtr rope_freqs;                       // gemma4: factors of the global layers
  TensorPtr per_layer_embd, per_layer_model_proj, per_layer_proj_norm;
  std::vector<GemmaLayer> layers;
  std::uint64_t bytes = 0;  // of all tensors in the file
  // Set when the per-layer table stays in the file: its rows are fetched on the host for each run.
  bool per_layer_on_host = false;
};

struct WeightOptions {
  // Leave the per-layer embedding table in the file and fetch its rows as tokens come (GPU only; the CPU always maps).
  bool per_layer_on_host = false;
  // Called now and then; returning false cancels.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress;
};

// Finds, checks and loads every tensor. An error names the tensor.
[[nodiscard]] Result<GemmaWeights> load_gemma_weights(const Gguf& file, const GemmaConfig& config, Backend& backend,
                                                      const WeightOptions& options);

// Bytes of the tensors that would go to the device, after all checks of names and shapes and before anything is loaded.
[[nodiscard]] Result<std::uint64_t> check_gemma_weights(const Gguf& file, const GemmaConfig& config,
                                                        const WeightOptions& options);

}  // namespace rullama
