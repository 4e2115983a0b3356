// Q8_0: 32 signed bytes with one scale.
#pragma once

#include "formats/dtype/blocks.h"

namespace rullama::codecs {

struct Q8_0 {
  static constexpr int kElements = 32, kBytes = 34;
  static constexpr bool kOffset = false, kOneScale = true;

  [[gnu::always_inline]] static inline Codes32 unpack32(const std::byte* src, int) {
    return {.low = load_bytes<SignedBytes16>(src + 2), .high = load_bytes<SignedBytes16>(src + 18), .d = load16(src)};
  }
};

}  // namespace rullama::codecs
