// Adapters in files: PEFT's safetensors with adapter_config.json, llama.cpp's GGUF, and the safetensors of the Rust
// program `rullama` (read only).
//
// The readers trust nothing: an error names the file, the tensor and the way out.
#pragma once

#include <string>
#include <utility>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"

namespace rullama {

// What adapter_config.json says.
struct AdapterSettings {
  std::uint32_t rank = 0;
  float alpha = 0, dropout = 0;
  bool rslora = false;
  std::vector<std::string> modules;  // target_modules
  std::string base;                  // base_model_name_or_path
  // By a module's name or the end of its path; as in PEFT they take precedence.
  std::vector<std::pair<std::string, std::uint32_t>> rank_pattern;
  std::vector<std::pair<std::string, float>> alpha_pattern;
};

// `file` is for messages. Settings that change what an adapter means and that are not supported (DoRA, biases,
// modules_to_save) are refused.
[[nodiscard]] Result<AdapterSettings> settings_from_json(std::string_view json, std::string_view file);
[[nodiscard]] std::string settings_to_json(const AdapterSettings& settings);

// Settings with the adapter's own ranks and scales; they say nothing of how it was trained.
[[nodiscard]] AdapterSettings settings_of(const Adapter& adapter);

// The model that an adapter is read for.
struct AdapterHost {
  const GemmaConfig& config;
  const GemmaWeights& weights;
  Backend& backend;
};

// `settings`: PEFT's, or null for the Rust program's files, which carry rank and alpha themselves.
[[nodiscard]] Result<Adapter> read_adapter(const Safetensors& file, const AdapterSettings* settings,
                                           const AdapterHost& host);
[[nodiscard]] Result<Adapter> read_adapter(const Gguf& file, const AdapterHost& host);

// PEFT's tensor names. The settings also go into the file's metadata ("adapter_config"), so that it is whole by itself.
[[nodiscard]] Result<> write_adapter(ByteSink& sink, const Adapter& adapter, const AdapterSettings& settings,
                                     Backend& backend);
// For llama.cpp; what that program would ignore, cannot load or takes in another sense is refused: embed_tokens,
// per_layer_model_projection, and the head of a model that has none of its own.
[[nodiscard]] Result<> write_adapter_gguf(ByteSink& sink, const Adapter& adapter, const AdapterHost& host);

}  // namespace rullama
