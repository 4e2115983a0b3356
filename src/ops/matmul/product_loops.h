// The inner loops of the CPU's products and of what comes between them, compiled for several instruction sets and
// chosen at run time (product_loops.cpp). Plain pointers only: what is compiled for one instruction set must not be
// shared with the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/dtype.h"

namespace rullama::product_loops {

// Rows of floats are read to a multiple of this many; what lies behind their end is zero.
inline constexpr std::size_t kPad = 16;
[[nodiscard]] inline std::size_t padded(std::size_t n) { return (n + kPad - 1) / kPad * kPad; }

// Zeros that start where a cache line does, so that no vector lies in two.
class AlignedFloats {
 public:
  explicit AlignedFloats(std::size_t n = 0) : lines_((n + 15) / 16) {}
  [[nodiscard]] float* data() { return reinterpret_cast<float*>(lines_.data()); }
  [[nodiscard]] const float* data() const { return reinterpret_cast<const float*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    float at[16] = {};
  };
  std::vector<Line> lines_;
};

// Rows of a weight.
struct Weight {
  DType dtype;
  std::size_t columns, stride;  // elements of a row, bytes from row to row
  const std::byte* data;        // of row 0
  [[nodiscard]] const std::byte* row(std::size_t r) const { return data + r * stride; }
};

// result[m, n] = scale * sum + (plus ? plus[m, n] : 0), rows `stride` floats apart
struct Output {
  float* data;
  const float* plus;
  std::size_t stride;
  float scale;
};

// Rows of x with 16-bit codes: each run of 32 elements has a scale.
struct Codes {
  const std::int16_t* codes;   // [rows, columns]
  const float *scales, *sums;  // [rows, columns / 32]; sums: of the decoded elements of a run
  std::size_t rows;
};
// Where the rows of x are few: their codes times the codes of w's rows first to last, blocks of which lie in their
// file's form.
inline constexpr std::size_t kMaxCodeRows = 3;
void encode_row(const float* x, std::size_t columns, std::int16_t* codes, float* scales, float* sums);
void dot_codes(const Codes& x, const Weight& w, std::size_t first, std::size_t last, std::size_t column0,
               const Output& output);

// Decodes `count` rows to floats, `stride` apart, zeros behind their end.
void decode_rows(const Weight& w, std::size_t first, std::size_t count, float* out, std::size_t stride);
// Decodes `columns` elements from element `begin` (a multiple of the block) of a row on.
void decode_part(const Weight& w, std::size_t row, std::size_t begin, std::size_t columns, float* out);

// result[m, column0 + n] from the dot products of `rows` rows of x with `count` rows of w, all padded.
void dot_floats(const float* x, std::size_t x_stride, std::size_t rows, const float* w, std::size_t w_stride,
                std::size_t count, std::size_t columns, std::size_t column0, const Output& output);

// sums[m, n] += sum over r below `terms` of a[m * row_step + r * term_step] * w[r * columns + n]; columns: padded.
void add_rows(const float* a, std::size_t row_step, std::size_t term_step, std::size_t rows, const float* w,
              std::size_t terms, std::size_t columns, float* sums);

// x[i] = exp(x[i] - most)
void exponentials(float* x, std::size_t n, float most);
// y[i] = gelu(gate[i]) * up[i], gelu in its tanh form; y may be one of them.
void gelu_product(const float* gate, const float* up, std::size_t n, float* y);

}  // namespace rullama::product_loops
