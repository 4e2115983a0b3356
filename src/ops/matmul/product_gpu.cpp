#include <algorithm>

#include "ops/geglu/geglu_forms.h"
#include "ops/matmul/product.h"
#include "ops/matmul/product_kernels.h"

namespace rullama {
namespace {

// `next` begins where `part` ends.
bool follows(const GpuView& w, const GpuPart& part, const GpuView& next) {
  return next.desc.dtype == w.desc.dtype && next.shape().back() == w.shape().back() && next.parts.size() == 1 &&
         next.parts[0].buffer == part.buffer && next.parts[0].first == part.first + part.rows;
}

// The leading weights that stand in one buffer one after the other.
struct Run {
  std::size_t count;
  GpuPart part;  // the first one of a weight with several
};
Run leading_run(std::span<const GpuView> weights) {
  const GpuView& w = weights[0];
  Run run{1, w.parts[0]};
  for (; w.parts.size() == 1 && run.count < weights.size() && follows(w, run.part, weights[run.count]); run.count++)
    run.part.rows += weights[run.count].parts[0].rows;
  return run;
}

// The shape for rows [row0, row1) of a weight that needs the most workgroup memory: each part gets its own.
RowsShape largest_shape(const gpu::Capabilities& caps, const TensorDesc& x, std::span<const GpuPart> parts,
                        std::uint64_t row0, std::uint64_t row1) {
  const std::uint64_t k = x.shape.back(), blocks = k / 32;
  RowsShape largest{};
  for (const GpuPart& part : parts) {
    const auto [from, to] = part.within(row0, row1);
    if (from >= to) continue;
    const RowsShape shape = rows_shape(caps, to - from, k, x.shape.rows());
    if (shape.workgroup_bytes(blocks) > largest.workgroup_bytes(blocks)) largest = shape;
  }
  return largest;
}

// What a kernel of x w^T reads in place of x: of rows [row0, row1) of w, which lie in `parts`.
Result<RowInputs> forward_inputs(GpuCall& call, ForwardKernel kernel, const GpuView& x, const GpuView& w,
                                 std::span<const GpuPart> parts, std::uint64_t row0, std::uint64_t row1) {
  switch (kernel) {
    case ForwardKernel::rows:
      return record_inputs(call, x, w.desc.dtype, largest_shape(call.caps, x.desc, parts, row0, row1));
    case ForwardKernel::tiles: return record_tile_inputs(call, x, w, false, row0, row1);
    case ForwardKernel::broadcast: break;
  }
  return RowInputs{};
}

Result<> record_forward(GpuCall& call, ForwardKernel kernel, const ProductBuffers& b, const GpuPart& part,
                        const ProductParams& params, const RowInputs& inputs) {
  switch (kernel) {
    case ForwardKernel::rows: return record_rows(call, b, part, params, inputs);
    case ForwardKernel::tiles: return record_tiles(call, b, part, params, inputs, false, false);
    case ForwardKernel::broadcast: break;
  }
  return record_broadcast(call, b, part, params);
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
  const ForwardKernel kernel = forward_kernel(call.caps, params.m);
  std::uint64_t column = 0;
  while (!weights.empty()) {
    const GpuView& w = weights[0];
    const Run run = leading_run(weights);
    weights = weights.subspan(run.count);
    const std::span<const GpuPart> parts = run.count == 1 ? w.parts : std::span<const GpuPart>(&run.part, 1);
    auto inputs = forward_inputs(call, kernel, x, w, parts, 0, parts.back().end());
    if (!inputs) return failed(inputs);
    for (const GpuPart& part : parts) {
      params.w = weight_params(w, part);
      params.rows = static_cast<std::uint32_t>(part.rows);
      params.first = static_cast<std::uint32_t>(column);
      column += part.rows;
      if (part.rows == 0) continue;
      if (auto ok = record_forward(call, kernel, {x, w, y}, part, params, *inputs); !ok) return ok;
    }
  }
  return {};
}

Result<> record_gated(GpuCall& call, const GpuView& x, std::span<const GpuView> weights, const GpuView& y) {
  if (y.shape().elements() == 0) return {};
  const GpuView& w = weights[0];
  const Run both = leading_run(weights);
  const ForwardKernel kernel = forward_kernel(call.caps, x.shape().rows());
  if (both.count == 2 && w.desc == weights[1].desc && kernel != ForwardKernel::broadcast) {
    ProductParams params = params_of(x, y);
    params.w = weight_params(w, both.part);
    params.rows = params.n;
    auto inputs = forward_inputs(call, kernel, x, w, {&both.part, 1}, 0, params.n);
    if (!inputs) return failed(inputs);
    // tiles in f32 have no gated form
    if (kernel == ForwardKernel::rows || inputs->form == RowInputs::Form::halves)
      return record_forward(call, kernel, {.x = x, .w = w, .y = y, .gated = true}, both.part, params, *inputs);
  }
  // the first two places of scratch memory belong to the products
  auto halves = call.scratch(2, TensorDesc{DType::F32, {y.shape().rows(), 2 * y.shape().back()}});
  if (!halves) return failed(halves);
  if (auto ok = record_concat(call, x, weights, *halves); !ok) return ok;
  return record_geglu_halves(call, *halves, y);
}

bool has_residual_kernel(const GpuCall& call, const ResidualProductGpu& p) {
  // What all workgroups together may read, from a cache, to make the same row: in about the time of a dispatch.
  constexpr std::uint64_t kMostBytes = 64u << 20;
  constexpr std::uint32_t kMostVectors = 6;  // that a thread holds in registers, of four inputs
  const ResidualBuffers& s = p.step;
  const std::uint64_t columns = s.sum.shape().back();
  if (s.sum.shape().rows() != 1 || call.caps.is_cpu() || call.caps.storage_buffers < 9) return false;
  if (p.kind == ResidualProductKind::gated && leading_run(p.weights).count < 2) return false;
  if (p.kind == ResidualProductKind::gelu && s.scale) return false;  // they share a binding
  std::uint64_t read = 0;
  for (auto rest = p.weights; !rest.empty();) {
    const Run run = leading_run(rest);
    if (rest[0].parts.size() != 1 || !takes_int8(call.caps, call.precision, rest[0].desc.dtype)) return false;
    const std::uint64_t n = p.kind == ResidualProductKind::gated ? run.part.rows / 2 : run.part.rows;
    const RowsShape shape = rows_shape(call.caps, n, columns, 1);
    if (shape.workgroup_bytes(columns / 32) > call.caps.workgroup_memory ||
        shape.vectors(static_cast<std::uint32_t>(columns / 32)) > kMostVectors)
      return false;
    read += n / shape.group_rows() * columns * (s.w_next ? 16 : 12);
    rest = rest.subspan(run.count);
  }
  return read <= kMostBytes;
}

Result<> record_residual_product(GpuCall& call, const ResidualProductGpu& p) {
  ProductParams params = params_of(p.step.sum, p.y);
  params.eps = p.eps;
  params.column = p.column;
  for (auto rest = p.weights; !rest.empty();) {
    const GpuView& w = rest[0];
    const Run run = leading_run(rest);
    rest = rest.subspan(run.count);
    if (run.part.rows == 0) continue;
    const bool gated = p.kind == ResidualProductKind::gated;
    params.w = weight_params(w, run.part);
    params.rows = static_cast<std::uint32_t>(gated ? params.n : run.part.rows);
    auto ok =
        record_rows(call, {.x = p.step.sum, .w = w, .y = p.y, .gated = gated, .step = &p.step, .factor = p.factor},
                    run.part, params, {.form = RowInputs::Form::residual});
    if (!ok) return ok;
    params.first += params.rows;
  }
  return {};
}

bool has_parts_kernel(const GpuCall& call, const GpuView& w) {
  const std::uint64_t n = w.shape()[0], k = w.shape()[1];
  return w.parts.size() == 1 && n > 0 && takes_int8(call.caps, call.precision, w.desc.dtype) &&
         rows_shape(call.caps, n, k, 1).workgroup_bytes(k / 32) <= call.caps.workgroup_memory;
}

Result<> record_parts_product(GpuCall& call, const AttentionParts& x, const GpuView& w, const GpuView& y) {
  ProductParams params = params_of(y, y);
  params.w = weight_params(w, w.parts[0]);
  params.rows = params.n;
  return record_rows(call, {.x = w, .w = w, .y = y}, w.parts[0], params,
                     {RowInputs::Form::parts, &x.sums, &x.stats, x.splits, x.width});
}

Result<> record_product(GpuCall& call, const ProductGpu& p) {
  const GpuView &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const bool outer = p.kind == ProductKind::outer, forward = p.kind == ProductKind::forward;
  if (y.shape().elements() == 0) return {};
  ProductParams params = params_of(x, y);
  params.scale = p.scale;
  const ProductBuffers buffers{.x = x, .w = w, .y = y, .plus = p.added ? &call.in[2] : nullptr, .alone = true};

  const ForwardKernel kernel = forward_kernel(call.caps, params.m);
  const bool tiles = !call.caps.is_cpu();  // of the other kinds
  const std::uint64_t row0 = outer ? 0 : p.row0, row1 = outer ? w.shape().rows() : p.row1;
  Result<RowInputs> inputs = RowInputs{};
  if (forward)
    inputs = forward_inputs(call, kernel, x, w, w.parts, row0, row1);
  else if (tiles && !outer)
    inputs = record_tile_inputs(call, x, w, true, row0, row1);
  if (!inputs) return failed(inputs);
  bool begun = false;
  for (const GpuPart& part : w.parts) {
    const auto [from, to] = part.within(row0, row1);
    // sums over no rows still have to be written once
    const bool last = &part == &w.parts.back();
    if (from >= to && (forward || begun || !last)) continue;
    params.w = weight_params(w, part);
    params.row0 = from < to ? static_cast<std::uint32_t>(from - part.row0) : 0;
    params.rows = from < to ? static_cast<std::uint32_t>(to - from) : 0;
    params.first = from < to ? static_cast<std::uint32_t>(from - row0) : 0;
    params.plus = !forward && begun ? 2 : p.added ? 1 : 0;
    begun = true;
    auto ok = forward ? record_forward(call, kernel, buffers, part, params, *inputs)
              : tiles ? record_tiles(call, buffers, part, params, *inputs, true, outer)
                      : record_columns(call, buffers, part, params, outer);
    if (!ok) return ok;
  }
  return {};
}

}  // namespace rullama
