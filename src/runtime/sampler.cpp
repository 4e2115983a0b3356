#include "runtime/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.h"

namespace rullama {
namespace {

constexpr float impossible = -std::numeric_limits<float>::infinity();

bool better(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

float weight(float logit, float best, float temperature) { return std::exp((logit - best) / temperature); }

float best_logit(std::span<const Candidate> candidates) {
  float best = impossible;
  for (const Candidate& c : candidates) best = std::max(best, c.logit);
  return best;
}

}  // namespace

Result<> check(const Sampling& s) {
  const auto wrong = [](std::string_view name, float value, std::string_view range) {
    return fail(cat(name, " is ", value, "; it must be ", range));
  };
  if (!std::isfinite(s.temperature)) return wrong("temperature", s.temperature, "a finite number");
  if (!(s.top_p >= 0 && s.top_p <= 1)) return wrong("top-p", s.top_p, "from 0 to 1");
  if (!(s.min_p >= 0 && s.min_p <= 1)) return wrong("min-p", s.min_p, "from 0 to 1");
  if (!(s.repeat_penalty > 0) || std::isinf(s.repeat_penalty))
    return wrong("repeat penalty", s.repeat_penalty, "a finite number above 0");
  if (!std::isfinite(s.frequency_penalty)) return wrong("frequency penalty", s.frequency_penalty, "a finite number");
  if (!std::isfinite(s.presence_penalty)) return wrong("presence penalty", s.presence_penalty, "a finite number");
  return {};
}

void SamplingDefaults::apply_to(Sampling& s) const {
  s.temperature = temperature.value_or(s.temperature);
  s.top_k = top_k.value_or(s.top_k);
  s.top_p = top_p.value_or(s.top_p);
  s.min_p = min_p.value_or(s.min_p);
  s.repeat_penalty = repeat_penalty.value_or(s.repeat_penalty);
  s.repeat_last_n = repeat_last_n.value_or(s.repeat_last_n);
}

RandomStream::RandomStream(std::uint64_t seed) {
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15u;
    std::uint64_t z = seed;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    word = z ^ z >> 31;
  }
}

std::uint64_t RandomStream::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

Sampler::Sampler(const Sampling& settings, std::span<const Token> suppressed)
    : settings_(settings), suppressed_(suppressed.begin(), suppressed.end()), random_(settings.seed) {}

Result<Token> Sampler::sample(std::span<const float> logits, TokenMask mask) {
  prepare(logits, mask);
  if (candidates_.empty())
    return fail(mask.empty()
                    ? "the model gave no usable logit: all are NaN or -infinity, so the weights are damaged or "
                      "a computation overflowed"
                    : "no token that the output constraint allows has a usable logit");
  return draw();
}

std::optional<std::uint32_t> Sampler::decisive() const {
  const Sampling& s = settings_;
  const bool penalties = s.repeat_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0;
  if ((penalties && s.repeat_last_n > 0) || kept() == 0) return std::nullopt;
  return kept();
}

DrawRule Sampler::rule(std::uint32_t later) const {
  RandomStream random = random_;
  for (std::uint32_t i = 0; i < later; i++) (void)random.next();
  return {.uniform = static_cast<float>(random.uniform()),
          .temperature = settings_.temperature,
          .truncation_temperature = truncation_temperature(),
          .top_p = settings_.top_p,
          .min_p = settings_.min_p,
          .count = static_cast<float>(kept())};
}

Result<Token> Sampler::sample_best(std::span<const RankedLogit> best) {
  if (best.empty()) return fail("no token is left to choose from");
  candidates_.clear();
  for (const RankedLogit& r : best.first(std::min<std::size_t>(kept(), best.size())))
    candidates_.push_back({r.id, r.logit, 0});
  sorted_ = true;
  truncate();
  assign_probabilities();
  return draw();
}

Token Sampler::draw() {
  double rest = random_.uniform();
  for (const Candidate& c : candidates_) {
    rest -= c.probability;
    if (rest < 0) return c.id;
  }
  // The sum fell short of the draw by rounding: take the last that has any probability.
  const auto last = std::ranges::find_if(candidates_.rbegin(), candidates_.rend(),
                                         [](const Candidate& c) { return c.probability > 0; });
  return last->id;
}

std::span<const Candidate> Sampler::distribution(std::span<const float> logits, TokenMask mask) {
  prepare(logits, mask);
  if (!sorted_) std::ranges::sort(candidates_, better);
  return candidates_;
}

void Sampler::accept(Token token) {
  if (settings_.repeat_last_n == 0) return;
  counts_[token]++;
  if (history_.size() < settings_.repeat_last_n) {
    history_.push_back(token);
    return;
  }
  const Token gone = std::exchange(history_[oldest_], token);
  oldest_ = (oldest_ + 1) % history_.size();
  const auto found = counts_.find(gone);
  if (--found->second == 0) counts_.erase(found);
}

void Sampler::forget() {
  history_.clear();
  counts_.clear();
  oldest_ = 0;
}

void Sampler::prepare(std::span<const float> logits, TokenMask mask) {
  logits_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); i++)
    logits_[i] = std::isnan(logits[i]) ? impossible : std::min(logits[i], std::numeric_limits<float>::max());
  for (const Token id : suppressed_)
    if (id < logits_.size()) logits_[id] = impossible;
  if (!mask.empty())
    for (std::size_t i = 0; i < logits_.size(); i++)
      if (i / 32 >= mask.size() || !(mask[i / 32] >> (i % 32) & 1)) logits_[i] = impossible;
  penalise();
  keep_candidates();
  assign_probabilities();
}

void Sampler::penalise() {
  const float r = settings_.repeat_penalty;
  for (const auto& [id, count] : counts_) {
    if (id >= logits_.size() || logits_[id] == impossible) continue;
    float& l = logits_[id];
    l = l > 0 ? l / r : l * r;
    l -= static_cast<float>(count) * settings_.frequency_penalty + settings_.presence_penalty;
    l = std::min(l, std::numeric_limits<float>::max());
  }
}

void Sampler::keep_candidates() {
  const std::size_t all = logits_.size();
  if (settings_.temperature <= 0) return keep_best(1);
  if (settings_.top_k > 0 && settings_.top_k < all)
    keep_best(settings_.top_k);
  else
    keep_all();
  truncate();
}

void Sampler::truncate() {
  if (settings_.top_p < 1) keep_top_p();
  if (settings_.min_p > 0 && !candidates_.empty()) {
    const float best = best_logit(candidates_);
    std::erase_if(candidates_, [&](const Candidate& c) {
      return weight(c.logit, best, truncation_temperature()) < settings_.min_p;
    });
  }
}

void Sampler::keep_all() {
  candidates_.clear();
  for (Token id = 0; id < logits_.size(); id++)
    if (logits_[id] != impossible) candidates_.push_back({id, logits_[id], 0});
  sorted_ = false;
}

// One pass with a heap whose top is the worst of the best so far. Nearly all tokens fail its comparison, so it is made
// for a block of them at once, which compilers turn into vector code.
void Sampler::keep_best(std::size_t count) {
  constexpr std::size_t block = 64;
  candidates_.clear();
  float bar = impossible;
  for (std::size_t begin = 0; begin < logits_.size(); begin += block) {
    const std::span<const float> here = std::span(logits_).subspan(begin, std::min(block, logits_.size() - begin));
    int above = 0;
    for (const float l : here) above += l > bar;
    if (above == 0) continue;
    for (std::size_t i = 0; i < here.size(); i++) {
      if (!(here[i] > bar)) continue;
      if (candidates_.size() == count) {
        std::ranges::pop_heap(candidates_, better);
        candidates_.pop_back();
      }
      candidates_.push_back({static_cast<Token>(begin + i), here[i], 0});
      std::ranges::push_heap(candidates_, better);
      if (candidates_.size() == count) bar = candidates_.front().logit;
    }
  }
  std::ranges::sort_heap(candidates_, better);
  sorted_ = true;
}

void Sampler::keep_top_p() {
  const float temperature = truncation_temperature(), best = best_logit(candidates_);
  double total = 0;
  for (const Candidate& c : candidates_) total += static_cast<double>(weight(c.logit, best, temperature));
  const double wanted = static_cast<double>(settings_.top_p) * total;

  // Only as much of the order is made as the sum needs: most of the weight lies in few tokens.
  std::size_t ordered = sorted_ ? candidates_.size() : 0, kept = 0, step = 256;
  for (double sum = 0; kept < candidates_.size() && (kept == 0 || sum < wanted); kept++) {
    if (kept == ordered) {
      ordered = std::min(candidates_.size(), ordered + step);
      step *= 8;
      const auto first = candidates_.begin() + static_cast<std::ptrdiff_t>(kept);
      const auto last = candidates_.begin() + static_cast<std::ptrdiff_t>(ordered);
      std::nth_element(first, last - 1, candidates_.end(), better);
      std::sort(first, last, better);
    }
    sum += static_cast<double>(weight(candidates_[kept].logit, best, temperature));
  }
  candidates_.resize(kept);
  sorted_ = true;
}

void Sampler::assign_probabilities() {
  const float temperature = settings_.temperature > 0 ? settings_.temperature : 1.0f;
  double total = 0;
  for (const float best = best_logit(candidates_); Candidate & c : candidates_)
    total += c.probability = static_cast<double>(weight(c.logit, best, temperature));
  for (Candidate& c : candidates_) c.probability /= total;
}

}  // namespace rullama
