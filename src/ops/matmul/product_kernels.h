// The kernels of products and how they are chosen; matmul and experts record them.
#pragma once

#include <cstdint>

#include "ops/gpu_call.h"
#include "ops/weight_kernel.h"

namespace rullama {

// `Params` of product.wgsl.
struct ProductParams {
  WeightParams w{};
  std::uint32_t m = 0, n = 0, row0 = 0, rows = 0, first = 0, x_stride = 0;
  float scale = 1;
  std::uint32_t plus = 0, tiles = 1;
  std::uint32_t experts = 0, share = 1, part = 0;
};

struct ProductBuffers {
  const GpuView &x, &w, &y;
  const GpuView *plus = nullptr, *ids = nullptr;
};

// How many threads do what in rows.wgsl.
struct RowsShape {
  std::uint32_t lanes, teams, rows, batch;
  bool subgroup;  // a team is a subgroup
  [[nodiscard]] bool operator==(const RowsShape&) const = default;
};
// For `n` rows of w and `m` rows of x.
[[nodiscard]] RowsShape rows_shape(const gpu::Capabilities& caps, std::uint64_t n, std::uint64_t m);

// True if a product by rows of w takes 8-bit activations.
[[nodiscard]] bool takes_int8(const gpu::Capabilities& caps, Precision precision, DType w);

// Rounds x to 8 bits into two scratch buffers of the call.
struct Int8Inputs {
  const gpu::Buffer *codes = nullptr, *scales = nullptr;
};
[[nodiscard]] Result<Int8Inputs> record_quantise(GpuCall& call, const GpuView& x);

// One part of w, `params` complete but for `tiles`. `int8`: null or the rounded activations.
[[nodiscard]] Result<> record_rows(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                                   const Int8Inputs* int8);
[[nodiscard]] Result<> record_columns(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                                      bool x_transposed);
[[nodiscard]] Result<> record_tiles(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                                    bool transposed, bool x_transposed);

}  // namespace rullama
