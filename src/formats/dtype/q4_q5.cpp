#include "formats/dtype/q4_q5.h"

#include "formats/dtype/search.h"

namespace rullama::codecs {
namespace {

// Step and offset as they are stored.
struct Stored {
  std::uint16_t step = 0, offset = 0;
  [[nodiscard]] Line line() const { return {f16_to_f32(step), f16_to_f32(offset)}; }
};
Stored stored(Line line) { return {to_half(line.step), to_half(line.offset)}; }

// Finds the step and offset of a block that was decoded.
std::optional<Stored> find_line(const Run<32>& run, int last) {
  const float low = run.lowest(), high = run.highest();
  const float slack = std::max(std::fabs(low), std::fabs(high)) * 0x1p-22f;
  for (int span = last; span > 0; span--) {
    const float d = f16_to_f32(to_half((high - low) / static_cast<float>(span)));
    if (std::fabs(d * static_cast<float>(span) - (high - low)) > slack) continue;
    for (int first = 0; first + span <= last; first++)
      for (const bool up : {true, false}) {  // in files from elsewhere a step may be negative
        const Stored found =
            stored({up ? d : -d, up ? low - d * static_cast<float>(first) : high + d * static_cast<float>(first)});
        if (meets(run, found.line(), {0, last})) return found;
      }
  }
  return {};
}

template <bool kMin>
Stored choose(const Run<32>& run, Codes codes) {
  if constexpr (kMin) {
    if (const auto found = find_line(run, codes.high)) return *found;
  } else if (const auto step = find_step(run, codes)) {
    return {*step};
  }
  const auto searched = kMin ? search_line(run, codes.high, 2, 10, false) : search_step(run, codes, 1.6f, 8);
  Best<32> best{run, codes};
  for (const Line& line : {searched.plain, searched.line}) best.try_line(stored(line).line());
  return stored(best.line);
}

template <int kBits, bool kMin>
void encode(const float* src, std::size_t blocks, std::byte* dst) {
  using Block = SmallBlock<kBits, kMin>;
  constexpr int kHalf = Block::kCodes / 2, kHigh = Block::kHigh, kLow = Block::kLow, kBytes = Block::kBytes;
  constexpr Codes kCodes = kMin ? Codes{0, 2 * kHalf - 1} : Codes{-kHalf, kHalf - 1};
  for (; blocks--; src += 32, dst += kBytes) {
    std::memset(dst, 0, kBytes);
    const Run<32> run(src);
    const Stored scales = choose<kMin>(run, kCodes);
    store16(dst, scales.step);
    if constexpr (kMin) store16(dst + 2, scales.offset);
    const auto codes = codes_of(run, scales.line(), kCodes);
    std::uint32_t high = 0;
    for (std::size_t i = 0; i < 32; i++) {
      const int code = codes[i] - kCodes.low;
      dst[kLow + i % 16] |= static_cast<std::byte>((code & 15) << (i < 16 ? 0 : 4));
      high |= static_cast<std::uint32_t>(code >> 4) << i;
    }
    if constexpr (kBits == 5) std::memcpy(dst + kHigh, &high, 4);
  }
}

}  // namespace

void decode_q4_0(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q4_0>(s, n, d); }
void encode_q4_0(const float* s, std::size_t n, std::byte* d) { encode<4, false>(s, n, d); }
void decode_q4_1(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q4_1>(s, n, d); }
void encode_q4_1(const float* s, std::size_t n, std::byte* d) { encode<4, true>(s, n, d); }
void decode_q5_0(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q5_0>(s, n, d); }
void encode_q5_0(const float* s, std::size_t n, std::byte* d) { encode<5, false>(s, n, d); }
void decode_q5_1(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q5_1>(s, n, d); }
void encode_q5_1(const float* s, std::size_t n, std::byte* d) { encode<5, true>(s, n, d); }

}  // namespace rullama::codecs
