// Ollama's model store, read as it lies on the disk: manifests that name blobs. Ollama need not run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rullama/result.h"

namespace rullama {

struct StoredModel {
  std::string name = {};        // as Ollama prints it: "gemma3:270m", "someone/model:latest", "hf.co/a/b:Q4_K_M"
  std::string path = {};        // of the GGUF file
  std::uint64_t bytes = 0;      // of the GGUF file
  std::int64_t modified = 0;    // of the manifest, seconds since 1970
  bool has_template = false;    // it was published with a prompt template: a chat model
  std::string system = {};      // the system prompt that comes with it, may be empty
  std::string parameters = {};  // JSON object with sampling settings (temperature, top_k, stop, ...), may be empty
};

class OllamaStore {
 public:
  // Where Ollama keeps models: $OLLAMA_MODELS if set, else the user's and the system service's default.
  OllamaStore();
  explicit OllamaStore(std::vector<std::string> roots) : roots_(std::move(roots)) {}

  [[nodiscard]] const std::vector<std::string>& roots() const { return roots_; }
  // Sorted by name. Broken entries are left out: find() tells what is wrong with them.
  [[nodiscard]] std::vector<StoredModel> list() const;
  // `name` as users of Ollama write it: [HOST/][NAMESPACE/]MODEL[:TAG].
  [[nodiscard]] Result<StoredModel> find(std::string_view name) const;

 private:
  std::vector<std::string> roots_;
};

// The file that MODEL on a command line means: a path to a file, or a name in the store.
[[nodiscard]] Result<StoredModel> find_model(const std::string& model, const OllamaStore& store = OllamaStore());

}  // namespace rullama
