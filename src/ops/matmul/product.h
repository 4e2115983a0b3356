// How the three products of matmul.h run: result[m, n] = scale * sum_r a(m, r) b(r, n) + plus.
#pragma once

#include <cstdint>
#include <span>

#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {

enum class ProductKind : std::uint8_t {
  forward,     // a = x, b = rows of w as columns
  transposed,  // a = dy, b = rows of w
  outer,       // a = x as columns, b = rows of w
};

// "matmul: w is U32 [4, 8], expected ..."
[[nodiscard]] Result<> check_product_weight(std::string_view op, std::string_view argument, const TensorDesc& w);

struct ProductCpu {
  ProductKind kind;
  float scale;
  std::uint64_t row0, row1;  // rows of w; not used by `outer`
  const CpuView &x, &w;
  const CpuView* plus;  // or null
  const CpuView& y;
  std::size_t column = 0;  // of y, where the results start; `plus` has no others
};

// The plain form: sums in double.
void product_reference(const ProductCpu& p, Crew& crew);
// The vectorised form.
void product_cpu(const ProductCpu& p, Crew& crew, Precision precision);
// The one that `precision` asks for.
inline void product_on_cpu(const ProductCpu& p, Crew& crew, Precision precision) {
  precision == Precision::reference ? product_reference(p, crew) : product_cpu(p, crew, precision);
}

// y = [x w0^T | x w1^T | ...]
void concat_on_cpu(const CpuCall& call, const CpuView& x, std::span<const CpuView> weights, const CpuView& y);
// y = gelu(x gate^T) * (x up^T), weights: gate and up
void gated_on_cpu(const CpuCall& call, const CpuView& x, std::span<const CpuView> weights, const CpuView& y);

struct ProductGpu {
  ProductKind kind;
  float scale;
  std::uint64_t row0, row1;
  bool added;  // the third input is `plus`
};
[[nodiscard]] Result<> record_product(GpuCall& call, const ProductGpu& p);
// y = [x w0^T | x w1^T | ...], x [m, k], y [m, sum of n]. Neighbours that share a buffer are one product.
[[nodiscard]] Result<> record_concat(GpuCall& call, const GpuView& x, std::span<const GpuView> weights,
                                     const GpuView& y);
// y = gelu(x gate^T) * (x up^T), weights: gate and up. In one dispatch for weights side by side, but for tiles in f32
// and broadcast.wgsl.
[[nodiscard]] Result<> record_gated(GpuCall& call, const GpuView& x, std::span<const GpuView> weights,
                                    const GpuView& y);

// A step of the residual stream and a product with what it gives (matmul.h), in one dispatch for weights side by side.
struct ResidualBuffers;
enum class ResidualProductKind : std::uint8_t { concat, gated, gelu };
struct ResidualProductGpu {
  ResidualProductKind kind;
  const ResidualBuffers& step;
  float eps;
  std::span<const GpuView> weights;
  const GpuView* factor;  // of `gelu`, from `column` on
  std::uint32_t column;
  const GpuView& y;
};
// True if there is a kernel for that and it pays: one row, not too many workgroups.
[[nodiscard]] bool has_residual_kernel(const GpuCall& call, const ResidualProductGpu& p);
[[nodiscard]] Result<> record_residual_product(GpuCall& call, const ResidualProductGpu& p);

// y = x w^T for one row x that attention left in parts: for each head `splits` weighted sums [width] of four numbers
// each, with their largest score and sum of exponentials.
struct AttentionParts {
  const gpu::Buffer &sums, &stats;
  std::uint32_t splits, width;
};
[[nodiscard]] bool has_parts_kernel(const GpuCall& call, const GpuView& w);
[[nodiscard]] Result<> record_parts_product(GpuCall& call, const AttentionParts& x, const GpuView& w, const GpuView& y);

}  // namespace rullama
