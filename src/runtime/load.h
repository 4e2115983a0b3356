// From the bytes of a GGUF file to a model on a device.
#pragma once

#include <memory>

#include "formats/gguf.h"
#include "formats/tokenizer.h"
#include "models/gemma/weights.h"
#include "runtime/runner.h"

namespace rullama {

// A file whose metadata and table of tensors have been read and checked.
struct ModelFile {
  std::shared_ptr<const Gguf> gguf;
  GemmaConfig config;
  Tokenizer tokenizer;
};

[[nodiscard]] Result<Tokenizer> read_tokenizer(const Gguf& file);

// Everything that can be wrong with a file is found here, before a device is asked for.
[[nodiscard]] Result<ModelFile> read_model_file(std::shared_ptr<const ByteSource> source);

// Loads all weights onto the backend. If they do not fit, the per-layer embedding table stays in the file; if they
// still do not, the error says how much they take.
[[nodiscard]] Result<std::shared_ptr<const TextModel>> load_text_model(const ModelFile& file,
                                                                       std::shared_ptr<Backend> backend,
                                                                       WeightOptions options);

}  // namespace rullama
