// How the three products of matmul.h run: result[m, n] = scale * sum_r a(m, r) b(r, n) + plus.
#pragma once

#include <cstdint>

#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {

enum class ProductKind : std::uint8_t {
  forward,     // a = x, b = rows of w as columns
  transposed,  // a = dy, b = rows of w
  outer,       // a = x as columns, b = rows of w
};

struct ProductCpu {
  ProductKind kind;
  float scale;
  std::uint64_t row0, row1;  // rows of w; not used by `outer`
  const CpuView &x, &w;
  const CpuView* plus;  // or null
  const CpuView& y;
};

// The plain form: sums in double.
void product_reference(const ProductCpu& p, Crew& crew);
// The vectorised form.
void product_cpu(const ProductCpu& p, Crew& crew, Precision precision);
// The one that `precision` asks for.
inline void product_on_cpu(const ProductCpu& p, Crew& crew, Precision precision) {
  precision == Precision::reference ? product_reference(p, crew) : product_cpu(p, crew, precision);
}

struct ProductGpu {
  ProductKind kind;
  float scale;
  std::uint64_t row0, row1;
  bool added;  // the third input is `plus`
};
[[nodiscard]] Result<> record_product(GpuCall& call, const ProductGpu& p);

}  // namespace rullama
