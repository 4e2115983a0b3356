#include "rullama/model.h"

#include <algorithm>

#include "api/impl.h"
#include "base/text.h"
#include "gpu/device.h"
#include "host/host.h"
#include "host/native/crew.h"
#include "host/native/mapped_file.h"
#include "host/native/memory.h"
#include "ops/cpu_backend.h"
#include "ops/gpu_backend.h"
#include "runtime/load.h"
#include "runtime/sampler.h"

namespace rullama {

// "" takes a real GPU if there is one and else the CPU: a CPU driver for GPU code is slower than the CPU itself.
Result<std::shared_ptr<Backend>> open_backend(const LoadOptions& options) {
  std::string selector = options.device == "gpu" ? "" : options.device;
  bool cpu = options.device == "cpu";
  if (options.device.empty()) {
    const auto found = devices();
    const auto real = std::find_if(found.begin(), found.end(), [](const DeviceInfo& d) { return d.kind != "cpu"; });
    cpu = real == found.end();
    if (!cpu) selector = real->id;
  }
  if (cpu) return std::shared_ptr<Backend>(make_cpu_backend(make_crew(options.threads), available_memory));
  auto device = gpu::Device::open(selector);
  if (!device) return failed(device);
  return std::shared_ptr<Backend>(make_gpu_backend(std::move(*device)));
}

namespace {

constexpr std::uint32_t kDefaultContext = 4096;

ModelInfo describe(const Gguf& file, const TextModel& text) {
  ModelInfo info;
  const GemmaConfig& c = text.config;
  info.name = c.name;
  info.architecture = c.arch == GemmaArch::gemma4 ? "gemma4" : "gemma3";
  info.device = text.backend->device_name();
  info.layers = c.n_layers();
  info.hidden = c.hidden;
  info.vocab = c.vocab;
  info.context_length = c.context_length;
  info.file_bytes = file.source()->size();
  info.weight_bytes = text.weights.bytes;
  info.chat = file.find("tokenizer.chat_template") != nullptr;
  for (const GgufTensor& t : file.tensors()) {
    if (!t.dtype) continue;
    const std::uint64_t elements = row_major(t).elements();
    info.parameters += elements;
    // gathered tables are read a row a token, the tied table once for the head
    if (t.name == "per_layer_token_embd.weight" ||
        (t.name == "token_embd.weight" && text.weights.output != text.weights.token_embd))
      continue;
    const bool expert = t.name.find("_exps.") != std::string_view::npos && c.n_experts;
    info.bytes_per_token += expert ? t.bytes * c.n_experts_used / c.n_experts : t.bytes;
  }
  return info;
}

}  // namespace

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> found;
  if (auto adapters = gpu::list_adapters()) {
    for (std::size_t i = 0; i < adapters->size(); i++) {
      const gpu::Capabilities& a = (*adapters)[i];
      found.push_back({std::to_string(i), a.name, a.backend, a.kind, a.driver});
    }
  }
  const auto rank = [](const DeviceInfo& d) {
    return d.kind == "discrete" ? 0 : d.kind == "integrated" ? 1 : d.kind == "cpu" ? 3 : 2;
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const DeviceInfo& a, const DeviceInfo& b) { return rank(a) < rank(b); });
  const auto first_cpu_driver =
      std::find_if(found.begin(), found.end(), [](const DeviceInfo& d) { return d.kind == "cpu"; });
  found.insert(first_cpu_driver, {"cpu", "CPU", "native", "cpu", ""});
  return found;
}

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Result<Model> Model::load(const std::string& path, const LoadOptions& options) {
  const double start = host::rullama_host_now();
  auto source = open_mapped(path);
  if (!source) return failed(source);
  auto file = read_model_file(*source);
  if (!file) return failed(file);
  auto backend = open_backend(options);
  if (!backend) return failed(backend);
  auto text = load_text_model(*file, std::move(*backend), {options.tables_on_host, options.progress});
  if (!text) return failed(text);
  auto impl = std::make_shared<Impl>(Impl{path, file->gguf, std::move(file->tokenizer), *text, {}});
  impl->info = describe(*file->gguf, **text);
  impl->info.load_seconds = host::rullama_host_now() - start;
  return Model(std::move(impl));
}

const ModelInfo& Model::info() const { return impl_->info; }
const Tokenizer& Model::tokenizer() const { return impl_->tokenizer; }

Result<std::vector<Token>> Model::tokenize(std::string_view text, bool special) const {
  return impl_->tokenizer.encode(text, {.markup = special ? Markup::all : Markup::none, .add_bos = true});
}

std::string Model::detokenize(std::span<const Token> tokens) const { return impl_->tokenizer.decode(tokens); }

Sampling Model::default_sampling() const {
  Sampling sampling;
  if (auto defaults = read_sampling_defaults(*impl_->file)) defaults->apply_to(sampling);
  return sampling;
}

Result<Session> Model::session(const SessionOptions& options) const {
  const GemmaConfig& config = impl_->text->config;
  const std::uint32_t context = options.context ? options.context : std::min(config.context_length, kDefaultContext);
  if (context > config.context_length)
    return fail(cat("a context of ", context, " positions is more than the model's ", config.context_length,
                    "; use a smaller --ctx-size"));
  const std::uint32_t batch = options.batch ? options.batch : impl_->text->backend->good_rows();
  auto sequence = Sequence::make(impl_->text, options.exact ? Precision::exact : Precision::fast, context, batch,
                                 options.kv_type == KvType::f16 ? DType::F16 : DType::F32);
  if (!sequence) return failed(sequence);
  return Session(std::make_unique<Session::Impl>(Session::Impl{impl_, std::move(*sequence)}));
}

}  // namespace rullama
