// Scales for a block that is encoded: those for which the sum of w * (x - decoded)^2 is smallest.
//
// Candidates spread the codes a little wider or narrower than the values; for the codes that each gives, the best scale
// is a least squares problem with a closed form. Sums are of four lanes, written as vectors.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "formats/dtype/codecs.h"

namespace rullama::codecs {

using Floats4 = float __attribute__((vector_size(16)));

// Beyond what the largest scale can mean in any format, and far from where squares overflow.
inline constexpr float kLargestValue = 0x1p30f;

// Comparisons that a NaN fails: it becomes `low`.
[[nodiscard]] inline Floats4 clamp(Floats4 v, float low, float high) {
  const Floats4 lowest = Floats4{} + low, highest = Floats4{} + high;
  v = v > lowest ? v : lowest;
  return v < highest ? v : highest;
}
// The nearest integers in [low, high]: adding 1.5 * 2^23 leaves no bits for a fraction.
[[nodiscard]] inline Floats4 to_codes(Floats4 v, float low, float high) {
  constexpr float kNoFraction = 0x1.8p23f;
  return (clamp(v, low, high) + kNoFraction) - kNoFraction;
}
[[nodiscard]] inline float total(Floats4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// As a half that is finite.
[[nodiscard]] inline std::uint16_t to_half(float v) { return f32_to_f16(std::clamp(v, -65504.f, 65504.f)); }

// Values that share a scale, with the weights of their errors.
template <int kSize>
struct Run {
  static constexpr int kVectors = kSize / 4;
  Floats4 x[kVectors], w[kVectors];

  explicit Run(const float* src) {
    std::memcpy(x, src, sizeof x);
    for (Floats4& v : x) v = clamp(v, -kLargestValue, kLargestValue);
    for (Floats4& v : w) v = Floats4{} + 1;
  }
  [[nodiscard]] float at(int i) const { return x[i / 4][i % 4]; }
  [[nodiscard]] float lowest() const {
    return bound([](Floats4 a, Floats4 b) { return a < b ? a : b; });
  }
  [[nodiscard]] float highest() const {
    return bound([](Floats4 a, Floats4 b) { return a > b ? a : b; });
  }
  [[nodiscard]] float sum_of_squares() const {
    Floats4 sum{};
    for (const Floats4& v : x) sum += v * v;
    return total(sum);
  }

 private:
  template <class Choose>
  [[nodiscard]] float bound(Choose choose) const {
    Floats4 v = x[0];
    for (int i = 1; i < kVectors; i++) v = choose(v, x[i]);
    return choose(choose(Floats4{} + v[0], Floats4{} + v[1]), choose(Floats4{} + v[2], Floats4{} + v[3]))[0];
  }
};

// K-quants: a value counts by its size, since what it is multiplied with is unknown, but a small one is not free.
template <int kSize>
void weigh(Run<kSize>& run, float floor) {
  for (int i = 0; i < Run<kSize>::kVectors; i++) run.w[i] = (run.x[i] < 0 ? -run.x[i] : run.x[i]) + floor;
}

struct Codes {
  int low, high;
};
// decoded = step * code + offset
struct Line {
  float step = 0, offset = 0;
};

[[nodiscard]] inline float inverse(float step) { return step != 0 ? 1 / step : 0; }

template <int kSize>
[[nodiscard]] float error_of(const Run<kSize>& run, Line line, Codes codes) {
  const float scale = inverse(line.step), low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  Floats4 sum{};
  for (int i = 0; i < Run<kSize>::kVectors; i++) {
    const Floats4 miss = run.x[i] - line.offset - line.step * to_codes((run.x[i] - line.offset) * scale, low, high);
    sum += run.w[i] * miss * miss;
  }
  return total(sum);
}

template <int kSize>
[[nodiscard]] std::array<int, kSize> codes_of(const Run<kSize>& run, Line line, Codes codes) {
  const float scale = inverse(line.step), low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  std::array<int, kSize> out;
  for (int i = 0; i < kSize / 4; i++) {
    const Floats4 q = to_codes((run.x[i] - line.offset) * scale, low, high);
    for (int l = 0; l < 4; l++) out[static_cast<std::size_t>(4 * i + l)] = static_cast<int>(q[l]);
  }
  return out;
}

// The best of some lines.
template <int kSize>
struct Best {
  const Run<kSize>& run;
  Codes codes;
  Line plain = {}, line = {};  // the first one tried and the best
  float error = INFINITY;
  bool try_line(Line candidate) {  // is it the best so far?
    const float found = error_of(run, candidate, codes);
    if (error == INFINITY) plain = candidate;
    const bool better = found < error;
    if (better) line = candidate, error = found;
    return better;
  }
};

// The step with the least error for the codes that `nominal` gives; offset 0.
template <int kSize>
[[nodiscard]] float fit_step(const Run<kSize>& run, float nominal, Codes codes) {
  const float scale = inverse(nominal), low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  Floats4 xq{}, qq{};
  for (int i = 0; i < Run<kSize>::kVectors; i++) {
    const Floats4 q = to_codes(run.x[i] * scale, low, high), wq = run.w[i] * q;
    xq += wq * run.x[i];
    qq += wq * q;
  }
  const float squares = total(qq);
  return squares > 0 ? total(xq) / squares : 0;
}

// The line with the least error for the codes that `nominal` gives. `below`: its offset is not above zero.
template <int kSize>
[[nodiscard]] Line fit_line(const Run<kSize>& run, Line nominal, Codes codes, bool below) {
  const float scale = inverse(nominal.step), low = static_cast<float>(codes.low), high = static_cast<float>(codes.high);
  // Relative to the nominal offset: for values far from zero, sums of squares would leave no digits.
  Floats4 w{}, q{}, qq{}, x{}, xq{};
  for (int i = 0; i < Run<kSize>::kVectors; i++) {
    const Floats4 from = run.x[i] - nominal.offset, code = to_codes(from * scale, low, high), wq = run.w[i] * code;
    w += run.w[i];
    q += wq;
    qq += wq * code;
    x += run.w[i] * from;
    xq += wq * from;
  }
  const float sw = total(w), sq = total(q), sqq = total(qq), sx = total(x), sxq = total(xq);
  const float determinant = sw * sqq - sq * sq;
  if (!(determinant > 0)) return nominal;
  const Line line{(sw * sxq - sx * sq) / determinant, nominal.offset + (sqq * sx - sq * sxq) / determinant};
  if (!below || line.offset <= 0) return line;
  return {(sxq + nominal.offset * sq) / sqq, 0};
}

// Is every value decoded from its code?
template <int kSize>
[[nodiscard]] bool meets(const Run<kSize>& run, Line line, Codes codes) {
  const auto q = codes_of(run, line, codes);
  for (std::size_t i = 0; i < kSize; i++) {
    const float product = line.step * static_cast<float>(q[i]);
    if (product + line.offset != run.at(static_cast<int>(i))) return false;
  }
  return true;
}

// The step of values that were decoded, each a half times a code: encoding them again must give the same.
template <int kSize>
[[nodiscard]] std::optional<std::uint16_t> find_step(const Run<kSize>& run, Codes codes) {
  const float low = run.lowest(), high = run.highest(), extreme = -low > high ? low : high;
  // Products of 11 bits by 8 leave the others empty, which values from elsewhere hardly ever do.
  if (std::bit_cast<std::uint32_t>(extreme) & 0x1f) return {};
  for (int code = codes.low; code < 0; code++) {
    const std::uint16_t half = to_half(extreme / static_cast<float>(code));
    const float step = f16_to_f32(half);
    if (step * static_cast<float>(code) == extreme && meets(run, {step, 0}, codes)) return half;
  }
  return {};
}

// Steps for codes around zero. The value farthest from it takes the lowest code, which reaches one further, or the
// highest, and up to `reach` codes more or less.
template <int kSize>
[[nodiscard]] Best<kSize> search_step(const Run<kSize>& run, Codes codes, float reach, int tries) {
  const float low = run.lowest(), high = run.highest(), extreme = -low > high ? low : high;
  Best<kSize> best{run, codes};
  best.try_line({extreme / static_cast<float>(codes.low), 0});
  for (const int end : {codes.low, codes.high})
    for (int k = -tries; k <= tries; k++) {
      const float more = reach * static_cast<float>(k) / static_cast<float>(tries);
      best.try_line({fit_step(run, extreme / (static_cast<float>(end) + (end < 0 ? -more : more)), codes), 0});
    }
  best.try_line({fit_step(run, best.line.step, codes), 0});
  return best;
}

// Lines through values of which the lowest has code 0 and the highest the last, or up to `reach` codes more or less.
template <int kSize>
[[nodiscard]] Best<kSize> search_line(const Run<kSize>& run, int last, float reach, int tries, bool below) {
  const float low = below ? std::min(run.lowest(), 0.f) : run.lowest(), high = std::max(run.highest(), low);
  const Codes codes{0, last};
  Best<kSize> best{run, codes};
  best.try_line({(high - low) / static_cast<float>(last), low});
  for (int k = -tries; k <= tries; k++) {
    const float span = static_cast<float>(last) + reach * static_cast<float>(k) / static_cast<float>(tries);
    best.try_line(fit_line(run, {(high - low) / span, low}, codes, below));
  }
  best.try_line(fit_line(run, best.line, codes, below));
  return best;
}

// The half that serves several scales as a unit: they become multiples of it by the codes' numbers. Scales that were
// such multiples are met again.
template <std::size_t kCount>
[[nodiscard]] std::uint16_t search_unit(const float (&scales)[kCount], Codes codes) {
  float extreme = 0, least = INFINITY;
  for (const float s : scales)
    if (std::fabs(s) > std::fabs(extreme)) extreme = s;
  const int end = codes.low < 0 ? codes.low : codes.high;
  std::uint16_t best = 0;
  for (int taken = 0; taken <= std::abs(end) / 2 && least > 0; taken++) {
    const std::uint16_t half = to_half(extreme / static_cast<float>(end < 0 ? end + taken : end - taken));
    const float unit = f16_to_f32(half), scale = inverse(unit);
    float error = 0;
    for (const float s : scales) {
      const float miss = s - unit * static_cast<float>(to_code(s * scale, codes.low, codes.high));
      error += miss * miss;
    }
    if (error < least) least = error, best = half;
  }
  return best;
}

}  // namespace rullama::codecs
