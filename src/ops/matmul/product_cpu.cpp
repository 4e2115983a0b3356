// The CPU's products: threads over rows of w (or columns of the result), vectors along rows.
#include <algorithm>
#include <vector>

#include "ops/matmul/product.h"
#include "ops/matmul/product_loops.h"

namespace rullama {
namespace {

using namespace product_loops;

constexpr std::size_t kPanelBytes = 192 << 10;  // decoded rows that are used together: they stay in the second cache

// Rows of floats that may be read to a multiple of kPad.
class PaddedRows {
 public:
  PaddedRows(const CpuView& x, std::size_t columns) : data_(x.f32().data()), stride_(columns) {
    if (columns % kPad == 0) return;
    stride_ = padded(columns);
    const std::size_t rows = x.shape().rows();
    copy_ = AlignedFloats(rows * stride_);
    for (std::size_t m = 0; m < rows; m++) std::copy_n(data_ + m * columns, columns, copy_.data() + m * stride_);
    data_ = copy_.data();
  }
  [[nodiscard]] const float* data() const { return data_; }
  [[nodiscard]] std::size_t stride() const { return stride_; }

 private:
  AlignedFloats copy_;
  const float* data_;
  std::size_t stride_;
};

Weight weight_of(const CpuView& w) {
  const std::size_t columns = w.shape().back();
  return {w.desc.dtype, columns, row_bytes(w.desc.dtype, columns), w.data};
}

Output output_of(const ProductCpu& p) {
  return {p.y.f32().data() + p.column, p.plus ? p.plus->f32().data() : nullptr, p.y.shape().back(), p.scale};
}

// At least this many rows of w a piece, so that handing it out costs little.
std::size_t grain(std::size_t columns, std::size_t rows) { return 1 + 32768 / (columns * rows + 1); }

void forward_codes(const ProductCpu& p, Crew& crew) {
  const Weight w = weight_of(p.w);
  const std::size_t rows = p.x.shape().rows(), runs = w.columns / 32;
  std::vector<std::int16_t> codes(rows * w.columns);
  std::vector<float> scales(rows * runs), sums(rows * runs);
  for (std::size_t m = 0; m < rows; m++)
    encode_row(p.x.row(m).data(), w.columns, &codes[m * w.columns], &scales[m * runs], &sums[m * runs]);
  const Codes x{codes.data(), scales.data(), sums.data(), rows};
  crew.run(p.row1 - p.row0, grain(w.columns, rows), [&](std::size_t begin, std::size_t end) {
    dot_codes(x, w, p.row0 + begin, p.row0 + end, begin, output_of(p));
  });
}

void forward_floats(const ProductCpu& p, Crew& crew) {
  const Weight w = weight_of(p.w);
  const PaddedRows x(p.x, w.columns);
  const std::size_t rows = p.x.shape().rows(), stride = padded(w.columns);
  const std::size_t panel = std::clamp<std::size_t>(kPanelBytes / (4 * stride) / 12 * 12, 12, 48);
  crew.run(p.row1 - p.row0, std::max<std::size_t>(grain(w.columns, rows), 3), [&](std::size_t begin, std::size_t end) {
    AlignedFloats decoded(std::min(panel, end - begin) * stride);
    for (std::size_t n = begin; n < end; n += panel) {
      const std::size_t count = std::min(panel, end - n);
      const float* w_rows = decoded.data();
      if (w.dtype == DType::F32 && stride == w.columns) {
        w_rows = reinterpret_cast<const float*>(w.row(p.row0 + n));
      } else {
        decode_rows(w, p.row0 + n, count, decoded.data(), stride);
      }
      dot_floats(x.data(), x.stride(), rows, w_rows, stride, count, stride, n, output_of(p));
    }
  });
}

// Both sums of rows: of w's rows by the elements of a row of x, or of b's rows by the elements of a column of a.
void sum_rows(const ProductCpu& p, Crew& crew) {
  const bool outer = p.kind == ProductKind::outer;
  const Weight w = weight_of(p.w);
  const std::size_t terms = outer ? p.w.shape().rows() : p.row1 - p.row0, first = outer ? 0 : p.row0;
  const std::size_t rows = p.y.shape().rows(), x_columns = p.x.shape().back();
  const std::size_t row_step = outer ? 1 : x_columns, term_step = outer ? x_columns : 1;
  const std::size_t block = std::max<std::size_t>(info(w.dtype).block_elements, kPad);
  const std::size_t blocks = (w.columns + block - 1) / block;
  const Output output = output_of(p);
  const std::size_t strip = std::max<std::size_t>(1, 256 / block);  // blocks of columns that are summed together
  crew.run((blocks + strip - 1) / strip, 1, [&](std::size_t begin, std::size_t end) {
    for (std::size_t s = begin; s < end; s++) {
      const std::size_t column0 = s * strip * block, count = std::min(strip * block, w.columns - column0);
      const std::size_t width = padded(count), panel = std::max<std::size_t>(1, kPanelBytes / 4 / width);
      AlignedFloats sums(rows * width), decoded(std::min(panel, terms) * width);
      for (std::size_t t = 0; t < terms; t += panel) {
        const std::size_t now = std::min(panel, terms - t);
        for (std::size_t r = 0; r < now; r++) decode_part(w, first + t + r, column0, count, decoded.data() + r * width);
        add_rows(p.x.f32().data() + t * term_step, row_step, term_step, rows, decoded.data(), now, width, sums.data());
      }
      for (std::size_t m = 0; m < rows; m++) {
        float* out = output.data + m * output.stride + column0;
        const float* plus = output.plus ? output.plus + m * output.stride + column0 : nullptr;
        for (std::size_t n = 0; n < count; n++)
          out[n] = output.scale * sums.data()[m * width + n] + (plus ? plus[n] : 0.0f);
      }
    }
  });
}

}  // namespace

void product_cpu(const ProductCpu& p, Crew& crew, Precision precision) {
  if (p.y.shape().elements() == 0) return;
  if (p.w.shape().back() == 0) return product_reference(p, crew);  // sums of nothing
  if (p.kind != ProductKind::forward) return sum_rows(p, crew);
  const bool few = p.x.shape().rows() <= kMaxCodeRows;
  precision == Precision::fast&& few&& info(p.w.desc.dtype).quantised ? forward_codes(p, crew)
                                                                      : forward_floats(p, crew);
}

}  // namespace rullama
