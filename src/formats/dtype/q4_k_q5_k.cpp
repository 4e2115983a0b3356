#include "formats/dtype/q4_k_q5_k.h"

#include <array>

#include "formats/dtype/codecs.h"

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

template <int kBits>
void encode(const float* src, std::size_t blocks, std::byte* dst) {
  using Block = SuperBlock<kBits>;
  constexpr int kCodes = Block::kCodes, kHigh = Block::kHigh, kLow = Block::kLow, kBytes = Block::kBytes;
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

}  // namespace

void decode_q4_k(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q4_K>(s, n, d); }
void encode_q4_k(const float* s, std::size_t n, std::byte* d) { encode<4>(s, n, d); }
void decode_q5_k(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q5_K>(s, n, d); }
void encode_q5_k(const float* s, std::size_t n, std::byte* d) { encode<5>(s, n, d); }

}  // namespace rullama::codecs
