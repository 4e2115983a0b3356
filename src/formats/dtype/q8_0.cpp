#include "formats/dtype/q8_0.h"

#include "formats/dtype/codecs.h"

namespace rullama::codecs {

void decode_q8_0(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q8_0>(s, n, d); }

void encode_q8_0(const float* src, std::size_t blocks, std::byte* dst) {
  for (; blocks--; src += 32, dst += 34) {
    float largest = 0;
    for (int i = 0; i < 32; i++) largest = std::fmax(largest, std::fabs(src[i]));
    store16(dst, f32_to_f16(largest / 127));
    const float d = load_half(dst), inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) dst[2 + i] = static_cast<std::byte>(to_code(src[i] * inverse, -127, 127));
  }
}

}  // namespace rullama::codecs
