#include <algorithm>

#include "ops/matmul/product.h"
#include "ops/matmul/product_kernels.h"

namespace rullama {
namespace {

// From how many rows of x on tiles pay on a real GPU.
constexpr std::uint64_t kTileRows = 9;

bool tiles_pay(const GpuCall& call, std::uint64_t rows) { return !call.caps.is_cpu() && rows >= kTileRows; }

// `next` begins where `part` ends.
bool follows(const GpuView& w, const GpuPart& part, const GpuView& next) {
  return next.desc.dtype == w.desc.dtype && next.shape().back() == w.shape().back() && next.parts.size() == 1 &&
         next.parts[0].buffer == part.buffer && next.parts[0].first == part.first + part.rows;
}

ProductParams params_of(const GpuView& x, const GpuView& y) {
  ProductParams params;
  params.m = static_cast<std::uint32_t>(y.shape().rows());
  params.n = static_cast<std::uint32_t>(y.shape().back());
  params.x_stride = static_cast<std::uint32_t>(x.shape().back());
  return params;
}

}  // namespace

Result<> record_concat(GpuCall& call, const GpuView& x, std::span<const GpuView> weights, const GpuView& y) {
  if (y.shape().elements() == 0) return {};
  ProductParams params = params_of(x, y);
  std::uint64_t column = 0;
  while (!weights.empty()) {
    const GpuView& w = weights[0];
    std::size_t count = 1;
    GpuPart joined = w.parts[0];
    for (; w.parts.size() == 1 && count < weights.size() && follows(w, joined, weights[count]); count++)
      joined.rows += weights[count].parts[0].rows;
    weights = weights.subspan(count);
    const std::span<const GpuPart> parts = count == 1 ? w.parts : std::span<const GpuPart>(&joined, 1);
    const bool tiles = tiles_pay(call, params.m);
    RowInputs inputs;
    if (!tiles) {
      auto made = record_inputs(call, x, w.desc.dtype, rows_shape(call.caps, parts[0].rows, params.m).batch);
      if (!made) return failed(made);
      inputs = *made;
    }
    for (const GpuPart& part : parts) {
      params.w = weight_params(w, part);
      params.rows = static_cast<std::uint32_t>(part.rows);
      params.first = static_cast<std::uint32_t>(column);
      column += part.rows;
      if (part.rows == 0) continue;
      auto ok = tiles ? record_tiles(call, {x, w, y}, part, params, false, false)
                      : record_rows(call, {x, w, y}, part, params, inputs);
      if (!ok) return ok;
    }
  }
  return {};
}

bool has_gated_kernel(const GpuCall& call, const GpuView& x, const GpuView& gate, const GpuView& up) {
  return !tiles_pay(call, x.shape().rows()) && gate.parts.size() == 1 && follows(gate, gate.parts[0], up) &&
         gate.desc == up.desc;
}

Result<> record_gated(GpuCall& call, const GpuView& x, const GpuView& gate, const GpuView& up, const GpuView& y) {
  if (y.shape().elements() == 0) return {};
  GpuPart both = gate.parts[0];
  both.rows += up.parts[0].rows;
  ProductParams params = params_of(x, y);
  params.w = weight_params(gate, both);
  params.rows = params.n;
  auto inputs = record_inputs(call, x, gate.desc.dtype, rows_shape(call.caps, params.n, params.m).batch);
  if (!inputs) return failed(inputs);
  return record_rows(call, {.x = x, .w = gate, .y = y, .gated = true}, both, params, *inputs);
}

Result<> record_product(GpuCall& call, const ProductGpu& p) {
  const GpuView &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const bool outer = p.kind == ProductKind::outer, forward = p.kind == ProductKind::forward;
  if (y.shape().elements() == 0) return {};
  ProductParams params = params_of(x, y);
  params.scale = p.scale;
  const ProductBuffers buffers{x, w, y, p.added ? &call.in[2] : nullptr, nullptr};

  const bool tiles = forward ? tiles_pay(call, params.m) : !call.caps.is_cpu();
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
