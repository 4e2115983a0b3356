#include "formats/dtype/q4_q5.h"

#include "formats/dtype/codecs.h"

namespace rullama::codecs {
namespace {

template <int kBits, bool kMin>
void encode(const float* src, std::size_t blocks, std::byte* dst) {
  using Block = SmallBlock<kBits, kMin>;
  constexpr int kCodes = Block::kCodes, kHigh = Block::kHigh, kLow = Block::kLow, kBytes = Block::kBytes;
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

}  // namespace

void decode_q4_0(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q4_0>(s, n, d); }
void encode_q4_0(const float* s, std::size_t n, std::byte* d) { encode<4, false>(s, n, d); }
void decode_q4_1(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q4_1>(s, n, d); }
void encode_q4_1(const float* s, std::size_t n, std::byte* d) { encode<4, true>(s, n, d); }
void decode_q5_0(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q5_0>(s, n, d); }
void encode_q5_0(const float* s, std::size_t n, std::byte* d) { encode<5, false>(s, n, d); }
void decode_q5_1(const std::byte* s, std::size_t n, float* d) { decode_blocks<Q5_1>(s, n, d); }
void encode_q5_1(const float* s, std::size_t n, std::byte* d) { encode<5, true>(s, n, d); }

}  // namespace rullama::codecs
