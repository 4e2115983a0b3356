// A Gemma model loaded from a GGUF file onto a device.
//
//   auto model = rullama::Model::load("gemma-3-270m.gguf");
//   if (!model) return report(model.error().message);
//   auto session = model->session();
//   auto answer = session->generate(*model->tokenize("The three primary colours are"), {.max_tokens = 32});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rullama/adapter.h"
#include "rullama/result.h"
#include "rullama/sampling.h"
#include "rullama/session.h"

namespace rullama {

struct DeviceInfo {
  std::string id;    // what LoadOptions::device takes: "cpu", "0", "1", ...
  std::string name;  // of the adapter
  std::string backend, kind, driver;
};

// The CPU and every adapter that WebGPU offers, best first. Without a GPU driver only the CPU is listed.
[[nodiscard]] std::vector<DeviceInfo> devices();

struct LoadOptions {
  std::string device =
      {};  // "" the best one (a real GPU, else the CPU), "cpu", "gpu", an index, or a part of an adapter's name
  std::uint32_t threads = 0;  // of the CPU device; 0: all cores
  // Leave the per-layer embedding table in the file and fetch rows as tokens come. Default: if the device's memory is
  // short.
  bool tables_on_host = false;
  // Called now and then with bytes done and in all; returning false cancels the load.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct ModelInfo {
  std::string name, architecture;  // general.name (may be empty), "gemma3", "gemma4"
  std::string device;
  std::uint32_t layers = 0, hidden = 0, vocab = 0, context_length = 0;
  std::uint64_t file_bytes = 0, weight_bytes = 0, parameters = 0;
  std::uint64_t bytes_per_token = 0;  // weight bytes that one decoded token reads
  double load_seconds = 0;
  bool chat = false;  // the file has the marks of a chat model (a chat template)
};

class Tokenizer;
class ChatTemplate;

class Model {
 public:
  [[nodiscard]] static Result<Model> load(const std::string& path, const LoadOptions& options = {});
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  [[nodiscard]] const ModelInfo& info() const;
  // With one BOS in front; text never becomes a control token unless `special`.
  [[nodiscard]] Result<std::vector<Token>> tokenize(std::string_view text, bool special = false) const;
  [[nodiscard]] std::string detokenize(std::span<const Token> tokens) const;
  [[nodiscard]] const Tokenizer& tokenizer() const;
  // The sampling settings that the file recommends, else Gemma's.
  [[nodiscard]] Sampling default_sampling() const;

  // An adapter for this model, from PEFT (the folder, or its safetensors file with adapter_config.json beside it), from
  // `rullama finetune`, or a GGUF file made for llama.cpp. Settings within a safetensors file (metadata
  // "adapter_config", as finetune writes them) count before those of an adapter_config.json beside it, which may be
  // another adapter's. An error names the file, the tensor and the way out.
  [[nodiscard]] Result<LoadedAdapter> load_adapter(const std::string& path) const;

  // A conversation with the model. Several sessions may live at a time; they are used one at a time.
  [[nodiscard]] Result<Session> session(const SessionOptions& options = {}) const;

  struct Impl;
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace rullama
