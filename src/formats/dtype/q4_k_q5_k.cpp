#include "formats/dtype/q4_k_q5_k.h"

#include "formats/dtype/search.h"

namespace rullama::codecs {
namespace {

struct Scale {
  std::uint32_t scale, min;
};

// Scale and minimum of sub-block j, six bits each, as q4_k_q5_k.h reads them.
void set_scale(std::byte* b, int j, Scale s) {
  const auto put = [&](int at, std::uint32_t bits) { b[at] |= static_cast<std::byte>(bits); };
  if (j < 4) {
    put(j, s.scale);
    put(j + 4, s.min);
  } else {
    put(j + 4, (s.scale & 15) | (s.min & 15) << 4);
    put(j - 4, s.scale >> 4 << 6);
    put(j, s.min >> 4 << 6);
  }
}

// Of 32 elements: 16 bytes of nibbles, element i in the low and i + 16 in the high one; and a word of fifth bits.
template <int kBits>
void regroup(const std::byte* src, std::size_t blocks, std::byte* dst) {
  using Block = SuperBlock<kBits>;
  for (; blocks--; src += Block::kBytes, dst += Block::kBytes) {
    std::memcpy(dst, src, Block::kHigh);
    for (int run = 0; run < 8; run++) {
      const Codes32 codes = Block::unpack32(src, run);
      const auto low = reinterpret_cast<Bytes16>(codes.low), high = reinterpret_cast<Bytes16>(codes.high);
      const Bytes16 nibbles = (low & 15) | (high & 15) << 4;
      std::memcpy(dst + Block::kLow + 16 * run, &nibbles, 16);
      if constexpr (kBits == 5) {
        std::uint32_t fifth = 0;
        for (int i = 0; i < 16; i++)
          fifth |= static_cast<std::uint32_t>(low[i] >> 4) << i | static_cast<std::uint32_t>(high[i] >> 4) << (16 + i);
        std::memcpy(dst + Block::kHigh + 4 * run, &fifth, 4);
      }
    }
  }
}

template <int kBits>
void encode(const float* src, std::size_t blocks, std::byte* dst) {
  using Block = SuperBlock<kBits>;
  constexpr int kHigh = Block::kHigh, kLow = Block::kLow, kBytes = Block::kBytes;
  constexpr Codes kCodes{0, Block::kCodes - 1}, kScales{0, 63};
  for (; blocks--; src += 256, dst += kBytes) {
    std::memset(dst, 0, kBytes);
    const float floor = std::sqrt(Run<256>(src).sum_of_squares() / 256);
    float steps[8], minima[8];  // the minimum is subtracted, so it is never below zero
    for (int j = 0; j < 8; j++) {
      Run<32> run(src + 32 * j);
      weigh(run, floor);
      const Line line = search_line(run, kCodes.high, 2, 10, true).line;
      steps[j] = line.step;
      minima[j] = -line.offset;
    }
    store16(dst, search_unit(steps, kScales));
    store16(dst + 2, search_unit(minima, kScales));
    const float d = load_half(dst), dmin = load_half(dst + 2);
    for (int j = 0; j < 8; j++) {
      Run<32> run(src + 32 * j);
      weigh(run, floor);
      const int scale = to_code(steps[j] * inverse(d), 0, 63), min = to_code(minima[j] * inverse(dmin), 0, 63);
      Best<32> best{run, kCodes};
      Scale chosen{};
      for (const int by : {0, -1, 1})
        for (const int min_by : {0, -1, 1}) {
          const int near = std::clamp(scale + by, 0, 63), near_min = std::clamp(min + min_by, 0, 63);
          if (best.try_line({d * static_cast<float>(near), -(dmin * static_cast<float>(near_min))}))
            chosen = {static_cast<std::uint32_t>(near), static_cast<std::uint32_t>(near_min)};
        }
      set_scale(dst + 4, j, chosen);
      const auto codes = codes_of(run, best.line, kCodes);
      for (int l = 0; l < 32; l++) {
        const int code = codes[static_cast<std::size_t>(l)];
        dst[kLow + j / 2 * 32 + l] |= static_cast<std::byte>((code & 15) << (j % 2 ? 4 : 0));
        if constexpr (kBits == 5) dst[kHigh + l] |= static_cast<std::byte>((code >> 4) << j);
      }
    }
  }
}

}  // namespace

void decode_q4_k(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q4_K>(s, n, d); }
void regroup_q4_k(const std::byte* s, std::size_t n, std::byte* d) { regroup<4>(s, n, d); }
void regroup_q5_k(const std::byte* s, std::size_t n, std::byte* d) { regroup<5>(s, n, d); }
void encode_q4_k(const float* s, std::size_t n, std::byte* d) { encode<4>(s, n, d); }
void decode_q5_k(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q5_K>(s, n, d); }
void encode_q5_k(const float* s, std::size_t n, std::byte* d) { encode<5>(s, n, d); }

}  // namespace rullama::codecs
