// Q4_0, Q4_1, Q5_0, Q5_1: 32 codes of 4 or 5 bits with one scale, centred or with a minimum.
// A block: d, [m], [32 fifth bits], 16 bytes with element i in the low and element i + 16 in the high nibble.
#pragma once

#include "formats/dtype/blocks.h"

namespace rullama::codecs {

// Bit i of 32 becomes bit 4 of byte i. Eight at a time: a copy of their byte in each byte of a word, of which byte i
// keeps bit i; the sum carries that to the byte's highest bit.
inline void spread_bits(const std::byte* src, Bytes16 (&out)[2]) {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  constexpr std::uint64_t kCopy = 0x0101010101010101, kOwn = 0x8040201008040201, kCarry = 0x7f7f7f7f7f7f7f7f;
  for (int half = 0; half < 2; half++) {
    Words words = {load_byte(src + 2 * half) * kCopy, load_byte(src + 2 * half + 1) * kCopy};
    words = ((words & kOwn) + kCarry) >> 3 & 0x10 * kCopy;
    std::memcpy(&out[half], &words, sizeof words);
  }
}

template <int kBits, bool kMin>
struct SmallBlock {
  static constexpr int kCodes = 1 << kBits, kHigh = kMin ? 4 : 2, kLow = kHigh + (kBits == 5 ? 4 : 0);
  static constexpr int kElements = 32, kBytes = kLow + 16;
  static constexpr bool kOffset = kMin, kOneScale = true;

  [[gnu::always_inline]] static inline Codes32 unpack32(const std::byte* src, int) {
    constexpr std::uint8_t kZero = kMin ? 0 : kCodes / 2;
    const Bytes16 bytes = load_bytes(src + kLow);
    Bytes16 low = bytes & 15, high = bytes >> 4;
    if constexpr (kBits == 5) {
      Bytes16 fifth[2];
      spread_bits(src + kHigh, fifth);
      low |= fifth[0];
      high |= fifth[1];
    }
    return {.low = signed_codes(low, kZero),
            .high = signed_codes(high, kZero),
            .d = load16(src),
            .m = kMin ? load16(src + 2) : std::uint16_t{0}};
  }
};

using Q4_0 = SmallBlock<4, false>;
using Q4_1 = SmallBlock<4, true>;
using Q5_0 = SmallBlock<5, false>;
using Q5_1 = SmallBlock<5, true>;

}  // namespace rullama::codecs
