#include "formats/dtype/q6_k.h"

#include "formats/dtype/codecs.h"

namespace rullama::codecs {
namespace {

// Where the bits of element i lie.
struct Place {
  int low, low_shift, high, high_shift;
};
Place place_of(int i) {
  const int p = i / 128, q = i % 128 / 32, l = i % 32;  // half, quarter of the half, lane
  return {64 * p + l + (q % 2) * 32, q < 2 ? 0 : 4, Q6_K::kHigh + 32 * p + l, 2 * q};
}

}  // namespace

void decode_q6_k(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q6_K>(s, n, d); }

void encode_q6_k(const float* src, std::size_t blocks, std::byte* dst) {
  for (; blocks--; src += 256, dst += Q6_K::kBytes) {
    std::memset(dst, 0, Q6_K::kBytes);
    float step[16], largest = 0;
    for (int s = 0; s < 16; s++) {
      float extreme = 0;  // codes reach one step further on the negative side
      for (int l = 0; l < 16; l++)
        if (std::fabs(src[16 * s + l]) > std::fabs(extreme)) extreme = src[16 * s + l];
      step[s] = extreme / -32;
      if (std::fabs(step[s]) > std::fabs(largest)) largest = step[s];
    }
    store16(dst + Q6_K::kD, f32_to_f16(largest / -128));
    const float d = load_half(dst + Q6_K::kD);
    for (int i = 0; i < 256; i++) {
      const int scale = d != 0 ? to_code(step[i / 16] / d, -128, 127) : 0;
      dst[Q6_K::kScales + i / 16] = static_cast<std::byte>(scale);
      const float unit = d * static_cast<float>(scale);
      const int code = 32 + (unit != 0 ? to_code(src[i] / unit, -32, 31) : 0);
      const Place at = place_of(i);
      dst[at.low] |= static_cast<std::byte>((code & 15) << at.low_shift);
      dst[at.high] |= static_cast<std::byte>((code >> 4) << at.high_shift);
    }
  }
}

}  // namespace rullama::codecs
