// Choosing the next token from the logits.
//
// Order: what is forbidden goes (suppressed tokens, the mask), penalties, top-k, top-p, min-p, temperature, draw.
// The temperature comes last by default, so top-p and min-p work on the model's own distribution (llama.cpp and
// Ollama do it so); `temperature_first` gives the order of HuggingFace. At temperature 1 there is no difference.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/draw/draw.h"
#include "rullama/result.h"
#include "rullama/sampling.h"

namespace rullama {

// An error names the setting and its range.
[[nodiscard]] Result<> check(const Sampling& settings);

// What a model file recommends (general.sampling.*); what it does not say stays empty.
struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<std::uint32_t> top_k, repeat_last_n;

  void apply_to(Sampling& settings) const;
};

class Gguf;

// Reads general.sampling.{temp, top_k, top_p, min_p, penalty_repeat, penalty_last_n}. An error names the key.
[[nodiscard]] Result<SamplingDefaults> read_sampling_defaults(const Gguf& file);

// Random numbers that depend on nothing but the seed: xoshiro256**, seeded by splitmix64 (Blackman and Vigna 2018).
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed);
  [[nodiscard]] std::uint64_t next();
  [[nodiscard]] double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  std::uint64_t state_[4];
};

struct Candidate {
  Token id = 0;
  float logit = 0;         // after penalties, not divided by the temperature
  double probability = 0;  // to be drawn
};

// Allowed tokens as bits: token i is bit i % 32 of word i / 32. Tokens beyond the last word are not allowed.
using TokenMask = std::span<const std::uint32_t>;

// A token and its logit, as the device ranks them.
struct RankedLogit {
  float logit = 0;
  Token id = 0;
};

class Sampler {
 public:
  // `suppressed` tokens are never chosen. `settings` must have passed check().
  explicit Sampler(const Sampling& settings, std::span<const Token> suppressed = {});

  // The next token. `logits` has one value per token; NaN and -infinity count as impossible. An error if no token is
  // left: all logits are NaN, or the mask allows nothing. Without a mask all tokens are allowed.
  [[nodiscard]] Result<Token> sample(std::span<const float> logits, TokenMask mask = {});

  // How many of the best logits decide, if not all of them do: with these, best first, equals by id and without
  // suppressed tokens, sample_best chooses as `sample` does from all.
  [[nodiscard]] std::optional<std::uint32_t> decisive() const;
  [[nodiscard]] Result<Token> sample_best(std::span<const RankedLogit> best);
  // How the device may do the same, for the draw that comes after `later` others. Only if decisive().
  [[nodiscard]] DrawRule rule(std::uint32_t later) const;

  // The tokens that may be drawn, most likely first (equals by id), with probabilities that sum up to 1. With
  // temperature <= 0 that is one token. Valid until the next call.
  [[nodiscard]] std::span<const Candidate> distribution(std::span<const float> logits, TokenMask mask = {});

  // Tells which token came next, of the prompt or of the answer; the penalties look back at these.
  void accept(Token token);
  void forget();  // an empty history; the random stream goes on

 private:
  void prepare(std::span<const float> logits, TokenMask mask);
  void penalise();
  void keep_candidates();
  void truncate();
  [[nodiscard]] std::uint32_t kept() const { return settings_.temperature <= 0 ? 1 : settings_.top_k; }
  [[nodiscard]] Token draw();
  void keep_best(std::size_t count);
  void keep_all();
  void keep_top_p();
  void assign_probabilities();

  // What top-p and min-p divide the logits by.
  [[nodiscard]] float truncation_temperature() const {
    return settings_.temperature_first ? settings_.temperature : 1.0f;
  }

  Sampling settings_;
  std::vector<Token> suppressed_;
  RandomStream random_;
  std::vector<Token> history_;  // a ring of the last repeat_last_n
  std::size_t oldest_ = 0;
  std::unordered_map<Token, int> counts_;  // of the tokens in history_
  std::vector<float> logits_;
  std::vector<Candidate> candidates_;
  bool sorted_ = false;  // candidates_ are in order of probability
};

}  // namespace rullama
