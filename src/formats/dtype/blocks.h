// How the quantised types' blocks are read: 32 elements at a time, as in quantised.wgsl. The decoders and the CPU's
// products are both written over this; a type's own header has
//
//   kElements, kBytes  of a block
//   kOffset            false: the offset is 0
//   kOneScale          true: low and high have the same scale
//   unpack32(block, run) -> Codes32
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace rullama::codecs {

// Sixteen codes, as a vector: left to themselves, compilers take such short loops apart.
using Bytes16 = std::uint8_t __attribute__((vector_size(16)));
using SignedBytes16 = std::int8_t __attribute__((vector_size(16)));

// element = code * (d * low_step or high_step) + m * offset_step, where d and m are halves
struct Codes32 {
  SignedBytes16 low, high;  // of elements 0 to 15 and 16 to 31
  std::uint16_t d = 0, m = 0;
  float low_step = 1, high_step = 1, offset_step = 1;
};

// A block's 16-bit fields may lie at odd addresses.
[[nodiscard]] inline std::uint16_t load16(const std::byte* p) {
  std::uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
[[nodiscard]] inline float load_half(const std::byte* p) { return f16_to_f32(load16(p)); }
[[nodiscard]] inline std::uint32_t load_byte(const std::byte* p) { return std::to_integer<std::uint32_t>(*p); }

template <class Vector = Bytes16>
[[nodiscard]] inline Vector load_bytes(const void* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
[[nodiscard]] inline SignedBytes16 signed_codes(const Bytes16& codes, std::uint8_t zero) {
  return reinterpret_cast<SignedBytes16>(codes - zero);
}

// Decodes `blocks` consecutive blocks to floats.
template <class Block>
inline void decode_blocks(const std::byte* src, std::size_t blocks, float* __restrict dst) {
  for (; blocks--; src += Block::kBytes) {
    for (int run = 0; run < Block::kElements / 32; run++, dst += 32) {
      const Codes32 c = Block::unpack32(src, run);
      const float d = f16_to_f32(c.d), low = d * c.low_step, high = d * c.high_step;
      const float offset = Block::kOffset ? f16_to_f32(c.m) * c.offset_step : 0;
      std::int8_t codes[32];
      std::memcpy(codes, &c.low, 16);
      std::memcpy(codes + 16, &c.high, 16);
      for (int i = 0; i < 32; i++) {
        const float value = static_cast<float>(codes[i]) * (i < 16 ? low : high);
        dst[i] = Block::kOffset ? value + offset : value;
      }
    }
  }
}

}  // namespace rullama::codecs
