// F32, F16 and BF16: one value at a time.
#include "formats/dtype/search.h"

namespace rullama::codecs {

void decode_f32(const std::byte* src, std::size_t n, float* dst) { std::memcpy(dst, src, n * 4); }
void encode_f32(const float* src, std::size_t n, std::byte* dst) { std::memcpy(dst, src, n * 4); }

void decode_f16(const std::byte* src, std::size_t n, float* dst) {
  for (std::size_t i = 0; i < n; i++) dst[i] = load_half(src + 2 * i);
}
void encode_f16(const float* src, std::size_t n, std::byte* dst) {
  for (std::size_t i = 0; i < n; i++) store16(dst + 2 * i, to_half(src[i]));
}

constexpr float kLargest = 0x1.fep127f;  // of BF16
void decode_bf16(const std::byte* src, std::size_t n, float* dst) {
  for (std::size_t i = 0; i < n; i++) dst[i] = bf16_to_f32(load16(src + 2 * i));
}
void encode_bf16(const float* src, std::size_t n, std::byte* dst) {
  for (std::size_t i = 0; i < n; i++) store16(dst + 2 * i, f32_to_bf16(std::clamp(src[i], -kLargest, kLargest)));
}

}  // namespace rullama::codecs
