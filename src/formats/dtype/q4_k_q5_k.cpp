// Q4_K and Q5_K: eight sub-blocks of 32 codes, each with a 6-bit scale and a 6-bit minimum under two halves d and dmin.
// A block: d, dmin, 12 bytes of scales and minima, [32 bytes of fifth bits], 128 bytes of nibbles.
#include <array>

#include "formats/dtype/codecs.h"

namespace rullama::codecs {
namespace {

struct Scale {
  std::uint32_t scale, min;
};

// Scale and minimum of sub-block j: the first four have six bits in a row, the others are put together from two places.
Scale scale_of(const std::byte* b, int j) {
  if (j < 4) return {load_byte(b + j) & 63, load_byte(b + j + 4) & 63};
  return {(load_byte(b + j + 4) & 15) | (load_byte(b + j - 4) >> 6) << 4,
          load_byte(b + j + 4) >> 4 | (load_byte(b + j) >> 6) << 4};
}

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

template <int kBits>
struct Super {
  static constexpr int kCodes = 1 << kBits, kHigh = 16, kLow = kBits == 5 ? 48 : 16, kBytes = kLow + 128;

  static void decode(const std::byte* src, std::size_t blocks, float* dst) {
    for (; blocks--; src += kBytes, dst += 256) {
      const float d = load_half(src), dmin = load_half(src + 2);
      for (int j = 0; j < 8; j++) {
        const Scale s = scale_of(src + 4, j);
        const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
        for (int l = 0; l < 32; l++) {
          const std::uint32_t byte = load_byte(src + kLow + j / 2 * 32 + l);
          std::uint32_t code = j % 2 ? byte >> 4 : byte & 15;
          if constexpr (kBits == 5) code |= (load_byte(src + kHigh + l) >> j & 1) << 4;
          dst[32 * j + l] = scale * static_cast<float>(code) - min;
        }
      }
    }
  }

  static void encode(const float* src, std::size_t blocks, std::byte* dst) {
    for (; blocks--; src += 256, dst += kBytes) {
      std::memset(dst, 0, kBytes);
      std::array<float, 8> step{}, low{};
      float largest_step = 0, largest_low = 0;
      for (int j = 0; j < 8; j++) {
        float lo = 0, hi = 0;  // the minimum is subtracted, so it is never below zero
        for (int l = 0; l < 32; l++) lo = std::fmin(lo, src[32 * j + l]), hi = std::fmax(hi, src[32 * j + l]);
        step[j] = (hi - lo) / (kCodes - 1);
        low[j] = -lo;
        largest_step = std::fmax(largest_step, step[j]);
        largest_low = std::fmax(largest_low, low[j]);
      }
      store16(dst, f32_to_f16(largest_step / 63));
      store16(dst + 2, f32_to_f16(largest_low / 63));
      const float d = load_half(dst), dmin = load_half(dst + 2);
      for (int j = 0; j < 8; j++) {
        const Scale s{static_cast<std::uint32_t>(d > 0 ? to_code(step[j] / d, 0, 63) : 0),
                      static_cast<std::uint32_t>(dmin > 0 ? to_code(low[j] / dmin, 0, 63) : 0)};
        set_scale(dst + 4, j, s);
        const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
        for (int l = 0; l < 32; l++) {
          const int code = scale > 0 ? to_code((src[32 * j + l] + min) / scale, 0, kCodes - 1) : 0;
          dst[kLow + j / 2 * 32 + l] |= static_cast<std::byte>((code & 15) << (j % 2 ? 4 : 0));
          if constexpr (kBits == 5) dst[kHigh + l] |= static_cast<std::byte>((code >> 4) << j);
        }
      }
    }
  }
};

}  // namespace

void decode_q4_k(const std::byte* s, std::size_t n, float* d) { Super<4>::decode(s, n, d); }
void encode_q4_k(const float* s, std::size_t n, std::byte* d) { Super<4>::encode(s, n, d); }
void decode_q5_k(const std::byte* s, std::size_t n, float* d) { Super<5>::decode(s, n, d); }
void encode_q5_k(const float* s, std::size_t n, std::byte* d) { Super<5>::encode(s, n, d); }

}  // namespace rullama::codecs
