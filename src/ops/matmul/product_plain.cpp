// Stands in for product_cpu.cpp and product_loops.cpp where Highway is not to be had (the browser build, which computes
// on the GPU).
#include <cmath>

#include "ops/matmul/product.h"
#include "ops/matmul/product_loops.h"

namespace rullama {

void product_cpu(const ProductCpu& p, Crew& crew, Precision) { product_reference(p, crew); }

namespace product_loops {

void dot_floats(const float* x, std::size_t x_stride, std::size_t rows, const float* w, std::size_t w_stride,
                std::size_t count, std::size_t columns, std::size_t column0, const Output& output) {
  for (std::size_t m = 0; m < rows; m++)
    for (std::size_t n = 0; n < count; n++) {
      float sum = 0;
      for (std::size_t i = 0; i < columns; i++) sum += x[m * x_stride + i] * w[n * w_stride + i];
      const std::size_t at = m * output.stride + column0 + n;
      output.data[at] = output.scale * sum + (output.plus ? output.plus[at] : 0.0f);
    }
}

void add_rows(const float* a, std::size_t row_step, std::size_t term_step, std::size_t rows, const float* w,
              std::size_t terms, std::size_t columns, float* sums) {
  for (std::size_t m = 0; m < rows; m++)
    for (std::size_t r = 0; r < terms; r++)
      for (std::size_t n = 0; n < columns; n++)
        sums[m * columns + n] += a[m * row_step + r * term_step] * w[r * columns + n];
}

void exponentials(float* x, std::size_t n, float most) {
  for (std::size_t i = 0; i < n; i++) x[i] = std::exp(x[i] - most);
}

void gelu_product(const float* gate, const float* up, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; i++) {
    const float x = gate[i], u = 0.7978845608f * x * (1 + 0.044715f * x * x);
    y[i] = x * up[i] / (1 + std::exp(-2 * std::fmin(std::fmax(u, -20.0f), 20.0f)));
  }
}

}  // namespace product_loops
}  // namespace rullama
