#include "rullama/session.h"

#include <algorithm>

#include "api/impl.h"
#include "base/text.h"
#include "host/host.h"
#include "host/native/file_writer.h"
#include "host/native/mapped_file.h"
#include "runtime/sampler.h"
#include "runtime/stop.h"

namespace rullama {
namespace {

using host::rullama_host_now;

// One answer in the making: sampler, text and the rules that end it.
class Generator {
 public:
  Generator(Session::Impl& session, const GenerateOptions& options)
      : s_(session),
        o_(options),
        tokenizer_(session.model->tokenizer),
        sampler_(options.sampling, session.model->tokenizer.suppressed()),
        decoder_(tokenizer_, options.show_special),
        stops_(options.stop) {
    if (const auto decisive = sampler_.decisive(); decisive && session.sequence->runner().ranks(*decisive))
      best_ = *decisive;
  }

  Result<Generation> run(std::span<const Token> prompt) {
    out_.prompt_tokens = static_cast<std::uint32_t>(prompt.size());
    Result<bool> more = read_prompt(prompt);
    while (more && *more) more = step();
    if (!more && more.error().code == ErrorCode::cancelled) more = finish(FinishReason::cancelled);
    if (!more) return failed(more);
    if (!stops_.stopped() && out_.finish != FinishReason::cancelled) {
      emit(stops_.push(decoder_.finish()));
      emit(stops_.finish());
    }
    return std::move(out_);
  }

 private:
  Result<bool> read_prompt(std::span<const Token> prompt) {
    const double start = rullama_host_now();
    const std::size_t kept = s_.sequence->common_prefix(prompt);
    const bool known = kept == prompt.size() && kept == s_.sequence->tokens().size() && s_.sequence->has_logits();
    if (auto ok = s_.sequence->set(prompt, best_, o_.cancelled); !ok) return failed(ok);
    if (ranked()) {
      if (auto best = s_.sequence->best_logits(best_); !best) return failed(best);
    } else if (auto logits = s_.sequence->logits(); !logits) {
      return failed(logits);
    }
    out_.timings.prompt_seconds = rullama_host_now() - start;
    out_.timings.prompt_tokens = static_cast<std::uint32_t>(std::max<std::size_t>(prompt.size() - kept, known ? 0 : 1));
    for (const Token id : prompt) sampler_.accept(id);
    return true;
  }

  Result<bool> finish(FinishReason reason) {
    out_.finish = reason;
    return false;
  }

  // Chooses one token, shows it and evaluates it; false when the answer has ended.
  Result<bool> step() {
    if (o_.cancelled && o_.cancelled()) return finish(FinishReason::cancelled);
    if (out_.tokens.size() >= o_.max_tokens) return finish(FinishReason::length);
    const double start = rullama_host_now();
    if (pending_) {
      auto room = append_pending();
      if (!room) return failed(room);
      if (!*room) return finish(FinishReason::context);
    }
    auto token = choose();
    if (!token) return failed(token);
    if (pending_) {
      out_.timings.decode_seconds += rullama_host_now() - start;
      out_.timings.decode_tokens++;
    }
    if (!o_.ignore_eos && tokenizer_.ends_generation(*token)) return finish(FinishReason::stop);
    pending_ = *token;
    out_.tokens.push_back(*token);
    sampler_.accept(*token);
    if (!emit(stops_.push(decoder_.push(*token)))) return finish(FinishReason::cancelled);
    return stops_.stopped() ? finish(FinishReason::stop) : Result<bool>(true);
  }

  // All logits, where they are here anyway, give the same choice without another row.
  [[nodiscard]] bool ranked() const { return best_ > 0 && !s_.sequence->has_logits(); }

  Result<Token> choose() {
    if (ranked()) {
      auto best = s_.sequence->best_logits(best_);
      return best ? sampler_.sample_best(*best) : failed(best);
    }
    auto logits = s_.sequence->logits();
    return logits ? sampler_.sample(*logits) : failed(logits);
  }

  // False if the context is full and may not slide.
  Result<bool> append_pending() {
    Sequence& sequence = *s_.sequence;
    if (sequence.tokens().size() >= sequence.context()) {
      if (!o_.slide || sequence.context() < 4) return false;
      // keep the first token (BOS) and the newer half
      std::vector<Token> kept(sequence.tokens().begin(), sequence.tokens().end());
      kept.erase(kept.begin() + 1, kept.begin() + 1 + static_cast<std::ptrdiff_t>(kept.size() / 2));
      if (auto ok = sequence.set(kept, best_, o_.cancelled); !ok) return failed(ok);
    }
    const Token id = *pending_;
    // the token after this one is drawn soon, and the one after that only if the answer may be so long
    std::optional<Draws> draws;
    if (best_ && out_.tokens.size() + 1 < o_.max_tokens) draws = {sampler_.rule(0), sampler_.rule(1)};
    if (auto ok = sequence.append(std::span(&id, 1), best_, draws); !ok) return failed(ok);
    return true;
  }

  bool emit(const std::string& text) {
    if (text.empty()) return true;
    out_.text += text;
    return !o_.on_text || o_.on_text(text);
  }

  Session::Impl& s_;
  const GenerateOptions& o_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  std::uint32_t best_ = 0;  // so many logits are fetched from the device; 0: all
  StreamDecoder decoder_;
  StopMatcher stops_;
  std::optional<Token> pending_;  // chosen and shown, not yet in the sequence
  Generation out_;
};

}  // namespace

std::string_view name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::cancelled: return "cancelled";
  }
  return "";
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<> Session::append(std::span<const Token> tokens) { return impl_->sequence->append(tokens); }
Result<std::span<const float>> Session::logits() { return impl_->sequence->logits(); }
Result<> Session::append(std::span<const Token> tokens,
                         const std::function<bool(std::uint32_t, std::span<const float>)>& row) {
  return impl_->sequence->append(tokens, row);
}
std::span<const Token> Session::tokens() const { return impl_->sequence->tokens(); }
std::uint32_t Session::context() const { return impl_->sequence->context(); }
std::uint32_t Session::batch() const { return impl_->sequence->cache().batch; }
Result<> Session::truncate(std::uint32_t length) {
  impl_->sequence->truncate(length);
  return {};
}
Result<> Session::set(std::span<const Token> tokens) { return impl_->sequence->set(tokens); }

Result<Generation> Session::generate(std::span<const Token> prompt, const GenerateOptions& options) {
  if (prompt.empty()) return fail("there is nothing to answer: the prompt has no tokens");
  if (auto ok = check(options.sampling); !ok) return failed(ok);
  return Generator(*impl_, options).run(prompt);
}

Result<> Session::save(const std::string& path) const {
  return write_file(path, [&](ByteSink& file) {
    return impl_->sequence->save([&](std::span<const std::byte> piece) { return file.write(piece); });
  });
}

Result<> Session::restore(const std::string& path) {
  auto file = open_mapped(path);
  if (!file) return failed(file);
  return impl_->sequence->restore(**file);
}

Result<> Session::shrink(std::uint32_t context) { return impl_->sequence->shrink(context); }
std::uint64_t Session::cache_bytes() const { return impl_->sequence->cache().bytes; }

}  // namespace rullama
