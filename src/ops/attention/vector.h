// Inner loops over the width of a head. Four sums of four lanes each: compilers keep them in vector registers of any
// instruction set, without leave to reorder a plain sum.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rullama::attention_detail {

using Lanes = float __attribute__((vector_size(16)));

inline Lanes load(const float* p) {
  Lanes v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, const Lanes& v) { std::memcpy(p, &v, sizeof v); }
inline float sum_of(const Lanes& v) { return (v[0] + v[2]) + (v[1] + v[3]); }

inline float dot(const float* a, const float* b, std::size_t n) {
  Lanes s[4] = {};
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::size_t l = 0; l < 4; l++) s[l] += load(a + i + 4 * l) * load(b + i + 4 * l);
  for (; i + 4 <= n; i += 4) s[0] += load(a + i) * load(b + i);
  float sum = sum_of((s[0] + s[2]) + (s[1] + s[3]));
  for (; i < n; i++) sum += a[i] * b[i];
  return sum;
}

// y += f x
inline void add_scaled(float* y, float f, const float* x, std::size_t n) {
  std::size_t i = 0;
  for (; i + 4 <= n; i += 4) store(y + i, load(y + i) + f * load(x + i));
  for (; i < n; i++) y[i] += f * x[i];
}

// Finite halves to floats, without branches: the exponent is moved by a product, which also takes subnormals.
inline void widen(const std::uint16_t* from, float* to, std::size_t n) {
  for (std::size_t i = 0; i < n; i++) {
    const std::uint32_t h = from[i];
    const float magnitude = std::bit_cast<float>((h & 0x7fffu) << 13) * 0x1p112f;
    to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (h & 0x8000u) << 16);
  }
}

}  // namespace rullama::attention_detail
