// A sequence of tokens, the keys and values that the model keeps of it, and generation.
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

namespace rullama {

enum class KvType : std::uint8_t { f16, f32 };

struct SessionOptions {
  std::uint32_t context = 0;  // positions; 0: the model's, at most 4096
  std::uint32_t batch = 0;    // tokens of a prompt that are processed at a time; 0: 1024 on a discrete GPU, else 512
  KvType kv_type = KvType::f16;
  bool exact = false;  // f32 all the way instead of the device's fast kernels
};

enum class FinishReason : std::uint8_t {
  stop,       // an end-of-turn token or a stop string
  length,     // max_tokens
  context,    // the context is full
  cancelled,  // on_text returned false, or cancelled true
};
[[nodiscard]] std::string_view name(FinishReason reason);

struct GenerateOptions {
  Sampling sampling = {};
  std::uint32_t max_tokens = UINT32_MAX;
  std::vector<std::string> stop = {};  // text at which generation ends; it is not part of the answer
  bool ignore_eos = false;             // go on after end-of-turn tokens (for measurements)
  bool slide = false;                  // when the context is full, drop the oldest half (keeping BOS) and go on
  bool show_special = false;           // control tokens appear in the text
  // Receives valid UTF-8 as it comes, never half a character. Returning false stops.
  std::function<bool(std::string_view text)> on_text = {};
  // Asked before each batch of the prompt and each token of the answer; returning true stops.
  std::function<bool()> cancelled = {};
};

struct Timings {
  double prompt_seconds = 0, decode_seconds = 0;
  std::uint32_t prompt_tokens = 0, decode_tokens = 0;  // evaluated: tokens reused from the cache are not counted
  [[nodiscard]] double prompt_tps() const { return prompt_seconds > 0 ? prompt_tokens / prompt_seconds : 0; }
  [[nodiscard]] double decode_tps() const { return decode_seconds > 0 ? decode_tokens / decode_seconds : 0; }
};

struct Generation {
  std::string text;
  std::vector<Token> tokens;  // generated, without the end-of-turn token
  std::uint32_t prompt_tokens = 0;
  FinishReason finish = FinishReason::stop;
  Timings timings;
};

class Session {
 public:
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Appends tokens and computes their keys and values. Any split of a sequence gives the same result,
  // but for rounding.
  [[nodiscard]] Result<> append(std::span<const Token> tokens);
  // The logits after the last token, [vocab]. Valid until the next call.
  [[nodiscard]] Result<std::span<const float>> logits();
  // Appends tokens and hands the logits of every one of them to `row` in order.
  [[nodiscard]] Result<> append(std::span<const Token> tokens,
                                const std::function<bool(std::uint32_t position, std::span<const float> logits)>& row);

  [[nodiscard]] std::span<const Token> tokens() const;
  [[nodiscard]] std::uint32_t context() const;
  [[nodiscard]] std::uint32_t batch() const;  // at most the context
  // Forgets everything from position `length` on. Sliding layers may have to be computed again: the next append does
  // it.
  [[nodiscard]] Result<> truncate(std::uint32_t length);
  // Makes the session hold exactly `tokens`, reusing the common beginning.
  [[nodiscard]] Result<> set(std::span<const Token> tokens);

  // Continues after `prompt`, which replaces the session's tokens but for the common beginning; only that is left if
  // the prompt is cancelled.
  [[nodiscard]] Result<Generation> generate(std::span<const Token> prompt, const GenerateOptions& options = {});

  // Uses these adapters from now on, several at a time add up; none: the base model. The tokens stay, what was computed
  // of them is computed again at the next call.
  void set_adapters(std::span<const AdapterUse> adapters);

  // The tokens, keys and values as a file for this model, and the logits if they were asked for: what is restored goes
  // on as what was saved. Only into a session with the same model, adapters, kv_type and precision.
  [[nodiscard]] Result<> save(const std::string& path) const;
  [[nodiscard]] Result<> restore(const std::string& path);
  // Gives memory back: the smallest cache that holds the present tokens, or `context` positions if that is more.
  [[nodiscard]] Result<> shrink(std::uint32_t context = 0);

  [[nodiscard]] std::uint64_t cache_bytes() const;

  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  [[nodiscard]] Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace rullama
