// What the page calls (web/engine.js): flat functions that answer with a pointer to an Answer.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/crew.h"
#include "base/text.h"
#include "formats/tokenizer.h"
#include "gpu/device.h"
#include "ops/cpu_backend.h"
#include "ops/gpu_backend.h"
#include "runtime/load.h"
#include "runtime/sampler.h"
#include "runtime/sequence.h"
#include "web/host_file.h"

#define WEB_EXPORT(name) __attribute__((export_name(#name))) extern "C"

namespace rullama::web {
namespace {

constexpr std::uint32_t kContext = 4096, kBatch = 128;

enum class Wanted : std::uint32_t { best, gpu, cpu };

Result<std::shared_ptr<Backend>> open_backend(Wanted wanted) {
  if (wanted != Wanted::cpu) {
    auto device = gpu::Device::open("");
    if (device) return std::shared_ptr<Backend>(make_gpu_backend(std::move(*device)));
    if (wanted == Wanted::gpu) return failed(device);
  }
  return std::shared_ptr<Backend>(make_cpu_backend(std::make_shared<Crew>()));
}

}  // namespace

// Read by the page as six 32-bit words. Valid until the next call.
struct Answer {
  std::uint32_t ok = 1;
  std::uint32_t ends = 0;      // of engine_next: the token ends the generation
  const char* text = nullptr;  // the error, if not ok
  std::size_t text_length = 0;
  const Token* ids = nullptr;
  std::size_t id_count = 0;
};
static_assert(sizeof(Answer) == 24);

// A model and one sequence of it, continued greedily.
class Engine {
 public:
  const Answer* load(std::string_view file, Wanted device, Precision precision) {
    if (auto ok = open(file, device, precision); !ok) return refuse(ok.error());
    return answer(model_->backend->device_name(), {});
  }

  const Answer* tokenize(std::string_view text) {
    if (!tokenizer_) return refuse_without_model();
    return answer({}, tokenizer_->encode(text, {.markup = Markup::none, .add_bos = true}));
  }

  const Answer* prompt(std::span<const Token> ids) {
    if (!sequence_) return refuse_without_model();
    pending_.reset();
    text_.emplace(*tokenizer_);
    if (auto ok = sequence_->set(ids); !ok) return refuse(ok.error());
    return answer({}, {});
  }

  const Answer* next() {
    if (!text_) return refuse({"there is no prompt to continue", ErrorCode::invalid});
    auto id = choose();
    if (!id) return refuse(id.error());
    answer(text_->push(*id), {*id});
    answer_.ends = tokenizer_->ends_generation(*id);
    return &answer_;
  }

 private:
  const Answer* refuse_without_model() { return refuse({"no model is loaded", ErrorCode::invalid}); }

  Result<> open(std::string_view name, Wanted wanted, Precision precision) {
    text_.reset();
    sequence_.reset();
    model_.reset();
    auto source = HostFile::open(name);
    if (!source) return failed(source);
    auto file = read_model_file(std::move(*source));
    if (!file) return failed(file);
    auto backend = open_backend(wanted);
    if (!backend) return failed(backend);
    auto model = load_text_model(*file, std::move(*backend), {});
    if (!model) return failed(model);
    model_ = std::move(*model);
    tokenizer_ = std::move(file->tokenizer);
    const std::uint32_t context = std::min(model_->config.context_length, kContext);
    auto sequence = Sequence::make(model_, precision, context, std::min(kBatch, context), DType::F32);
    if (!sequence) return failed(sequence);
    sequence_ = std::move(*sequence);
    return {};
  }

  // Evaluates the token that was chosen last and chooses the one after it.
  Result<Token> choose() {
    if (pending_)
      if (auto ok = sequence_->append(std::span(&*pending_, 1)); !ok) return failed(ok);
    auto logits = sequence_->logits();
    if (!logits) return failed(logits);
    auto id = Sampler({.temperature = 0}, tokenizer_->suppressed()).sample(*logits);
    if (id) pending_ = *id;
    return id;
  }

  const Answer* answer(std::string text, std::vector<Token> ids) {
    answer_text_ = std::move(text);
    answer_ids_ = std::move(ids);
    answer_ = {1, 0, answer_text_.data(), answer_text_.size(), answer_ids_.data(), answer_ids_.size()};
    return &answer_;
  }
  const Answer* refuse(const Error& error) {
    answer(error.message, {});
    answer_.ok = 0;
    return &answer_;
  }

  std::shared_ptr<const TextModel> model_;
  std::optional<Tokenizer> tokenizer_;
  std::unique_ptr<Sequence> sequence_;
  std::optional<StreamDecoder> text_;
  std::optional<Token> pending_;  // chosen, not yet in the sequence
  std::string answer_text_;
  std::vector<Token> answer_ids_;
  Answer answer_;
};

// --- exports. Those that may wait are called by the page as such (wasm.js): all of them but none in a constructor.

WEB_EXPORT(engine_make) Engine* engine_make() { return std::make_unique<Engine>().release(); }
WEB_EXPORT(engine_free) void engine_free(Engine* engine) { std::unique_ptr<Engine>{engine}; }

// `device`: 0 the best there is, 1 a GPU, 2 the CPU. The answer's text is the device's name.
WEB_EXPORT(engine_load)
const Answer* engine_load(Engine* engine, const char* file, std::size_t length, std::uint32_t device, int exact) {
  return engine->load({file, length}, static_cast<Wanted>(device), exact ? Precision::exact : Precision::fast);
}
// The answer's ids are those of the text, with BOS in front.
WEB_EXPORT(engine_tokenize) const Answer* engine_tokenize(Engine* engine, const char* text, std::size_t length) {
  return engine->tokenize({text, length});
}
// Reads a prompt; what it has in common with the sequence so far is not computed again.
WEB_EXPORT(engine_prompt) const Answer* engine_prompt(Engine* engine, const Token* ids, std::size_t count) {
  return engine->prompt({ids, count});
}
// The most likely next token, and the text that it completes.
WEB_EXPORT(engine_next) const Answer* engine_next(Engine* engine) { return engine->next(); }

}  // namespace rullama::web
