// Q6_K: sixteen sub-blocks of 16 codes of 6 bits, each with a signed 8-bit scale under one half d.
// A block: 128 bytes of low nibbles, 64 bytes of high pairs, 16 scales, d.
#pragma once

#include "formats/dtype/blocks.h"

namespace rullama::codecs {

struct Q6_K {
  static constexpr int kHigh = 128, kScales = 192, kD = 208;
  static constexpr int kElements = 256, kBytes = 210;
  static constexpr bool kOffset = false, kOneScale = false;

  [[gnu::always_inline]] static inline Codes32 unpack32(const std::byte* src, int run) {
    const int half = run / 4, quarter = run % 4;
    const std::byte *low = src + 64 * half + quarter % 2 * 32, *high = src + kHigh + 32 * half;
    Bytes16 codes[2];
    for (int part = 0; part < 2; part++) {
      const Bytes16 nibbles = load_bytes(low + 16 * part), pairs = load_bytes(high + 16 * part);
      codes[part] = (quarter < 2 ? nibbles & 15 : nibbles >> 4) | (pairs >> (2 * quarter) & 3) << 4;
    }
    const auto step = [&](int j) { return static_cast<float>(std::to_integer<std::int8_t>(src[kScales + j])); };
    return {.low = signed_codes(codes[0], 32),
            .high = signed_codes(codes[1], 32),
            .d = load16(src + kD),
            .low_step = step(2 * run),
            .high_step = step(2 * run + 1)};
  }
};

}  // namespace rullama::codecs
