// Everything that the metadata of a Gemma 3 or Gemma 4 text model says, checked. Nothing is assumed of a model's name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "ops/tensor.h"
#include "rullama/result.h"

namespace rullama {

enum class GemmaArch : std::uint8_t { gemma3, gemma4 };

struct LayerConfig {
  bool sliding = false;  // sees only the last `window` positions
  std::uint32_t head_dim = 0, n_heads = 0, n_kv_heads = 0;
  std::uint32_t rotated = 0;   // leading elements of a head that turn with the position
  std::uint32_t ffn = 0;       // width of the dense FFN
  std::uint32_t kv_layer = 0;  // the layer whose keys and values are read: itself, or an earlier one of its kind
  float rope_base = 0;
  float rope_scale = 1;  // positions are multiplied by it
};

struct GemmaConfig {
  GemmaArch arch = GemmaArch::gemma3;
  std::string name;  // general.name, may be empty
  std::uint32_t hidden = 0, vocab = 0, context_length = 0, window = 0;
  std::uint32_t per_layer = 0;  // width of the per-layer embeddings; 0: none
  std::uint32_t n_experts = 0, n_experts_used = 0, expert_ffn = 0;
  float eps = 1e-6f, softcap = 0;
  float attention_scale = 1;              // of the scores
  bool value_norm = false;                // values get an RMS norm without weight
  std::vector<std::uint32_t> suppressed;  // ids that are never generated
  std::vector<LayerConfig> layers;

  [[nodiscard]] std::uint32_t n_layers() const { return static_cast<std::uint32_t>(layers.size()); }
  [[nodiscard]] bool has_kv(std::uint32_t layer) const { return layers[layer].kv_layer == layer; }
};

// A tensor's dimensions as the engine counts them: outputs first, elements of a row last.
[[nodiscard]] Shape row_major(const GgufTensor& tensor);

// Reads and checks all keys; an error names the key, what it holds and what was expected.
[[nodiscard]] Result<GemmaConfig> read_gemma_config(const Gguf& file);

}  // namespace rullama
