// What stands behind the public API's values.
#pragma once

#include <memory>

#include "formats/gguf.h"
#include "formats/tokenizer.h"
#include "rullama/model.h"
#include "rullama/session.h"
#include "runtime/sequence.h"

namespace rullama {

struct Model::Impl {
  std::string path;
  std::shared_ptr<const Gguf> file;
  Tokenizer tokenizer;
  std::shared_ptr<const TextModel> text;
  ModelInfo info;
};

// The device that `options` name.
[[nodiscard]] Result<std::shared_ptr<Backend>> open_backend(const LoadOptions& options);

struct Session::Impl {
  std::shared_ptr<const Model::Impl> model;
  std::unique_ptr<Sequence> sequence;
};

}  // namespace rullama
