#include <algorithm>

#include "ops/matmul/product.h"
#include "ops/matmul/product_kernels.h"

namespace rullama {
namespace {

// From how many rows of x on tiles pay on a real GPU.
constexpr std::uint64_t kTileRows = 9;

}  // namespace

Result<> record_product(GpuCall& call, const ProductGpu& p) {
  const GpuView &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const bool outer = p.kind == ProductKind::outer, forward = p.kind == ProductKind::forward;
  if (y.shape().elements() == 0) return {};
  ProductParams params;
  params.m = static_cast<std::uint32_t>(y.shape().rows());
  params.n = static_cast<std::uint32_t>(y.shape().back());
  params.x_stride = static_cast<std::uint32_t>(x.shape().back());
  params.scale = p.scale;
  const ProductBuffers buffers{x, w, y, p.added ? &call.in[2] : nullptr, nullptr};

  const bool tiles = !call.caps.is_cpu() && (!forward || params.m >= kTileRows);
  RowInputs inputs;
  if (forward && !tiles) {
    auto made = record_inputs(call, x, w.desc.dtype, rows_shape(call.caps, params.n, params.m).batch);
    if (!made) return failed(made);
    inputs = *made;
  }
  const std::uint64_t row0 = outer ? 0 : p.row0, row1 = outer ? w.shape().rows() : p.row1;
  bool begun = false;
  for (const GpuPart& part : w.parts) {
    const std::uint64_t from = std::max(row0, part.row0), to = std::min(row1, part.row0 + part.rows);
    // sums over no rows still have to be written once
    const bool last = &part == &w.parts.back();
    if (from >= to && (forward || begun || !last)) continue;
    params.w = weight_params(w, part);
    params.row0 = from < to ? static_cast<std::uint32_t>(from - part.row0) : 0;
    params.rows = from < to ? static_cast<std::uint32_t>(to - from) : 0;
    params.first = from < to ? static_cast<std::uint32_t>(from - row0) : 0;
    params.plus = !forward && begun ? 2 : p.added ? 1 : 0;
    begun = true;
    auto ok = forward && !tiles ? record_rows(call, buffers, part, params, inputs)
              : tiles           ? record_tiles(call, buffers, part, params, !forward, outer)
                                : record_columns(call, buffers, part, params, outer);
    if (!ok) return ok;
  }
  return {};
}

}  // namespace rullama
