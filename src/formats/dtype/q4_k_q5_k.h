// Q4_K and Q5_K: eight sub-blocks of 32 codes, each with a 6-bit scale and a 6-bit minimum under two halves d and dmin.
// A block: d, dmin, 12 bytes of scales and minima, [32 bytes of fifth bits], 128 bytes of nibbles.
#pragma once

#include "formats/dtype/blocks.h"

namespace rullama::codecs {

template <int kBits>
struct SuperBlock {
  static constexpr int kCodes = 1 << kBits, kSteps = 4, kHigh = 16, kLow = kBits == 5 ? 48 : 16;
  static constexpr int kElements = 256, kBytes = kLow + 128;
  static constexpr bool kOffset = true, kOneScale = true;

  [[gnu::always_inline]] static inline Codes32 unpack32(const std::byte* src, int run) {
    // Steps of four sub-blocks at a time, one in each byte of a word: the first four have six bits in a row, the others
    // are put together from two places.
    std::uint32_t a, b, c;
    std::memcpy(&a, src + kSteps, 4);
    std::memcpy(&b, src + kSteps + 4, 4);
    std::memcpy(&c, src + kSteps + 8, 4);
    constexpr std::uint32_t kFour = 0x0f0f0f0f, kTwo = 0x30303030;
    const std::uint32_t scales = run < 4 ? a : (c & kFour) | (a >> 2 & kTwo);
    const std::uint32_t minima = run < 4 ? b : (c >> 4 & kFour) | (b >> 2 & kTwo);
    const int shift = 8 * (run % 4);
    const float step = static_cast<float>(scales >> shift & 63);
    const std::byte* bytes = src + kLow + run / 2 * 32;
    Bytes16 codes[2];
    for (int half = 0; half < 2; half++) {
      codes[half] = load_bytes(bytes + 16 * half);
      codes[half] = run % 2 ? codes[half] >> 4 : codes[half] & 15;
      if constexpr (kBits == 5) codes[half] |= (load_bytes(src + kHigh + 16 * half) >> run & 1) << 4;
    }
    return {.low = signed_codes(codes[0], 0),
            .high = signed_codes(codes[1], 0),
            .d = load16(src),
            .m = load16(src + 2),
            .low_step = step,
            .high_step = step,
            .offset_step = -static_cast<float>(minima >> shift & 63)};
  }
};

using Q4_K = SuperBlock<4>;
using Q5_K = SuperBlock<5>;

}  // namespace rullama::codecs
