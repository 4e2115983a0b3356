// Q4_0, Q4_1, Q5_0, Q5_1: 32 codes of 4 or 5 bits with one scale, centred or with a minimum.
// A block: d, [m], [32 fifth bits], 16 bytes with element i in the low and element i + 16 in the high nibble.
#include "formats/dtype/codecs.h"

namespace rullama::codecs {
namespace {

template <int kBits, bool kMin>
struct Small {
  static constexpr int kCodes = 1 << kBits, kHigh = kMin ? 4 : 2, kLow = kHigh + (kBits == 5 ? 4 : 0),
                       kBytes = kLow + 16;

  static void decode(const std::byte* src, std::size_t blocks, float* dst) {
    for (; blocks--; src += kBytes, dst += 32) {
      const float d = load_half(src), m = kMin ? load_half(src + 2) : 0;
      std::uint32_t high = 0;
      if constexpr (kBits == 5) std::memcpy(&high, src + kHigh, 4);
      for (int i = 0; i < 32; i++) {
        const std::uint32_t byte = load_byte(src + kLow + i % 16);
        const std::uint32_t code = (i < 16 ? byte & 15 : byte >> 4) | (high >> i & 1) << 4;
        dst[i] = kMin ? static_cast<float>(code) * d + m : (static_cast<float>(code) - kCodes / 2) * d;
      }
    }
  }

  static void encode(const float* src, std::size_t blocks, std::byte* dst) {
    for (; blocks--; src += 32, dst += kBytes) {
      std::memset(dst, 0, kBytes);
      float lowest = src[0], highest = src[0], extreme = 0;
      for (int i = 0; i < 32; i++) {
        lowest = std::fmin(lowest, src[i]);
        highest = std::fmax(highest, src[i]);
        if (std::fabs(src[i]) > std::fabs(extreme)) extreme = src[i];
      }
      // centred codes reach one step further on the negative side: that side takes the extreme value
      store16(dst, f32_to_f16(kMin ? (highest - lowest) / (kCodes - 1) : extreme / -(kCodes / 2)));
      if constexpr (kMin) store16(dst + 2, f32_to_f16(lowest));
      const float d = load_half(dst), inverse = d != 0 ? 1 / d : 0, m = kMin ? load_half(dst + 2) : 0;
      std::uint32_t high = 0;
      for (int i = 0; i < 32; i++) {
        const int code = to_code((src[i] - m) * inverse + (kMin ? 0 : kCodes / 2), 0, kCodes - 1);
        dst[kLow + i % 16] |= static_cast<std::byte>((code & 15) << (i < 16 ? 0 : 4));
        high |= static_cast<std::uint32_t>(code >> 4) << i;
      }
      if constexpr (kBits == 5) std::memcpy(dst + kHigh, &high, 4);
    }
  }
};

}  // namespace

void decode_q4_0(const std::byte* s, std::size_t n, float* d) { Small<4, false>::decode(s, n, d); }
void encode_q4_0(const float* s, std::size_t n, std::byte* d) { Small<4, false>::encode(s, n, d); }
void decode_q4_1(const std::byte* s, std::size_t n, float* d) { Small<4, true>::decode(s, n, d); }
void encode_q4_1(const float* s, std::size_t n, std::byte* d) { Small<4, true>::encode(s, n, d); }
void decode_q5_0(const std::byte* s, std::size_t n, float* d) { Small<5, false>::decode(s, n, d); }
void encode_q5_0(const float* s, std::size_t n, std::byte* d) { Small<5, false>::encode(s, n, d); }
void decode_q5_1(const std::byte* s, std::size_t n, float* d) { Small<5, true>::decode(s, n, d); }
void encode_q5_1(const float* s, std::size_t n, std::byte* d) { Small<5, true>::encode(s, n, d); }

}  // namespace rullama::codecs
