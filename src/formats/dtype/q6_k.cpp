#include "formats/dtype/q6_k.h"

#include "formats/dtype/search.h"

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

// Of 32 elements: 16 bytes of nibbles, element i in the low and i + 16 in the high one; and 8 bytes of pairs, of which
// byte b has those of elements b, b + 4, b + 8 and b + 12, and byte b + 4 the same of the other sixteen.
void regroup_q6_k(const std::byte* src, std::size_t blocks, std::byte* dst) {
  for (; blocks--; src += Q6_K::kBytes, dst += Q6_K::kBytes) {
    std::memcpy(dst + Q6_K::kScales, src + Q6_K::kScales, Q6_K::kBytes - Q6_K::kScales);
    for (int run = 0; run < 8; run++) {
      const Codes32 codes = Q6_K::unpack32(src, run);
      const auto low = reinterpret_cast<Bytes16>(codes.low) + 32, high = reinterpret_cast<Bytes16>(codes.high) + 32;
      const Bytes16 nibbles = (low & 15) | (high & 15) << 4;
      std::memcpy(dst + 16 * run, &nibbles, 16);
      for (int b = 0; b < 8; b++) {
        const Bytes16& from = b < 4 ? low : high;
        std::uint32_t pairs = 0;
        for (int k = 0; k < 4; k++) pairs |= static_cast<std::uint32_t>(from[b % 4 + 4 * k] >> 4) << (2 * k);
        dst[Q6_K::kHigh + 8 * run + b] = static_cast<std::byte>(pairs);
      }
    }
  }
}

void encode_q6_k(const float* src, std::size_t blocks, std::byte* dst) {
  constexpr Codes kCodes{-32, 31}, kScales{-128, 127};
  for (; blocks--; src += 256, dst += Q6_K::kBytes) {
    std::memset(dst, 0, Q6_K::kBytes);
    const float floor = std::sqrt(Run<256>(src).sum_of_squares() / 256);
    float steps[16];
    for (int s = 0; s < 16; s++) {
      Run<16> run(src + 16 * s);
      weigh(run, floor);
      steps[s] = search_step(run, kCodes, 4, 8).line.step;
    }
    const std::uint16_t half = search_unit(steps, kScales);
    store16(dst + Q6_K::kD, half);
    const float d = f16_to_f32(half);
    for (int s = 0; s < 16; s++) {
      Run<16> run(src + 16 * s);
      weigh(run, floor);
      const int nearest = to_code(steps[s] * inverse(d), kScales.low, kScales.high);
      Best<16> best{run, kCodes};
      int scale = 0;
      for (const int by : {0, -1, 1}) {
        const int near = std::clamp(nearest + by, kScales.low, kScales.high);
        if (best.try_line({d * static_cast<float>(near), 0})) scale = near;
      }
      dst[Q6_K::kScales + s] = static_cast<std::byte>(scale);
      const auto codes = codes_of(run, best.line, kCodes);
      for (int l = 0; l < 16; l++) {
        const int code = codes[static_cast<std::size_t>(l)] - kCodes.low;
        const Place at = place_of(16 * s + l);
        dst[at.low] |= static_cast<std::byte>((code & 15) << at.low_shift);
        dst[at.high] |= static_cast<std::byte>((code >> 4) << at.high_shift);
      }
    }
  }
}

}  // namespace rullama::codecs
