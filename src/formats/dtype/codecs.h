// The decoder, encoder and regrouping (DTypeInfo) of each weight format, one file a format. Layouts: the table in
// docs/adding-a-format.md.
#pragma once

#include <cmath>

#include "formats/dtype/blocks.h"

namespace rullama::codecs {

inline void store16(std::byte* p, std::uint16_t v) { std::memcpy(p, &v, sizeof v); }

// Rounds to the nearest integer in [lo, hi]; a NaN gives lo.
[[nodiscard]] inline int to_code(float value, int lo, int hi) {
  const float r = std::nearbyint(value);
  return r >= static_cast<float>(hi) ? hi : r > static_cast<float>(lo) ? static_cast<int>(r) : lo;
}

using Decode = void (*)(const std::byte* src, std::size_t blocks, float* dst);
using Encode = void (*)(const float* src, std::size_t blocks, std::byte* dst);

void regroup_q4_k(const std::byte*, std::size_t, std::byte*);
void regroup_q5_k(const std::byte*, std::size_t, std::byte*);
void regroup_q6_k(const std::byte*, std::size_t, std::byte*);

void decode_f32(const std::byte*, std::size_t, float*);
void encode_f32(const float*, std::size_t, std::byte*);
void decode_f16(const std::byte*, std::size_t, float*);
void encode_f16(const float*, std::size_t, std::byte*);
void decode_bf16(const std::byte*, std::size_t, float*);
void encode_bf16(const float*, std::size_t, std::byte*);
void decode_q4_0(const std::byte*, std::size_t, float*);
void encode_q4_0(const float*, std::size_t, std::byte*);
void decode_q4_1(const std::byte*, std::size_t, float*);
void encode_q4_1(const float*, std::size_t, std::byte*);
void decode_q5_0(const std::byte*, std::size_t, float*);
void encode_q5_0(const float*, std::size_t, std::byte*);
void decode_q5_1(const std::byte*, std::size_t, float*);
void encode_q5_1(const float*, std::size_t, std::byte*);
void decode_q8_0(const std::byte*, std::size_t, float*);
void encode_q8_0(const float*, std::size_t, std::byte*);
void decode_q4_k(const std::byte*, std::size_t, float*);
void encode_q4_k(const float*, std::size_t, std::byte*);
void decode_q5_k(const std::byte*, std::size_t, float*);
void encode_q5_k(const float*, std::size_t, std::byte*);
void decode_q6_k(const std::byte*, std::size_t, float*);
void encode_q6_k(const float*, std::size_t, std::byte*);

}  // namespace rullama::codecs
