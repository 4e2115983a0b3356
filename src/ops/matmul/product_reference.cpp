#include <algorithm>
#include <vector>

#include "ops/matmul/product.h"

namespace rullama {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); i++) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void store(const ProductCpu& p, std::size_t m, std::size_t n, double sum) {
  const double plus = p.plus ? p.plus->row(m)[n] : 0.0;
  p.y.row(m)[p.column + n] = static_cast<float>(p.scale * sum + plus);
}

}  // namespace

void product_reference(const ProductCpu& p, Crew& crew) {
  const std::size_t columns = p.w.shape().back();
  if (p.kind == ProductKind::forward) {
    crew.run(p.row1 - p.row0, 1, [&](std::size_t begin, std::size_t end) {
      std::vector<float> row(columns);
      for (std::size_t n = begin; n < end; n++) {
        p.w.decode_row(p.row0 + n, row);
        for (std::size_t m = 0; m < p.x.shape().rows(); m++) store(p, m, n, dot(p.x.row(m), row));
      }
    });
    return;
  }
  // sums of rows of w, each decoded once for all rows of the result
  const bool outer = p.kind == ProductKind::outer;
  const std::size_t terms = outer ? p.w.shape().rows() : p.row1 - p.row0, first = outer ? 0 : p.row0;
  const std::size_t rows = p.y.shape().rows();
  crew.run(rows, (rows + crew.width() - 1) / crew.width(), [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(columns);
    std::vector<double> sums((end - begin) * columns);
    for (std::size_t r = 0; r < terms; r++) {
      p.w.decode_row(first + r, row);
      for (std::size_t m = begin; m < end; m++) {
        const double a = outer ? p.x.row(r)[m] : p.x.row(m)[r];
        double* sum = sums.data() + (m - begin) * columns;
        for (std::size_t n = 0; n < columns; n++) sum[n] += a * row[n];
      }
    }
    for (std::size_t m = begin; m < end; m++)
      for (std::size_t n = 0; n < columns; n++) store(p, m, n, sums[(m - begin) * columns + n]);
  });
}

}  // namespace rullama
