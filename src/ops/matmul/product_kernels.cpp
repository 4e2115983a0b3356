#include "ops/matmul/product_kernels.h"

#include <algorithm>

#include "base/text.h"
#include "ops/matrix_units.h"
#include "ops/sum_parts.h"

namespace rullama {
namespace {

std::uint64_t pieces(std::uint64_t count, std::uint64_t size) { return (count + size - 1) / size; }

// Bindings 0 to 6 of product_bindings.wgsl, or 0 to 8 of x_residual.wgsl. Inputs that a product does not have are stood
// in for by x.
Result<> dispatch(GpuCall& call, std::string_view key, const auto& source, const ProductBuffers& b, const GpuPart& part,
                  const ProductParams& params, const RowInputs& inputs, std::uint64_t groups) {
  if (const ResidualBuffers* s = b.step) {
    const GpuView &next = s->w_next ? *s->w_next : s->w, &factor = b.factor ? *b.factor : s->scale ? *s->scale : s->w;
    return call.dispatch(key, source,
                         {gpu::read(*part.buffer), gpu::read(*part.buffer), read(s->residual), read(s->block),
                          read(s->w), read(next), read(factor), write(b.y), write(s->sum)},
                         params, gpu::Grid::wrap(groups));
  }
  const gpu::Binding x2 = inputs.codes ? gpu::read(*inputs.codes) : read(b.x);
  const gpu::Binding x3 = inputs.scales ? gpu::read(*inputs.scales) : read(b.x);
  return call.dispatch(key, source,
                       {gpu::read(*part.buffer), gpu::read(*part.buffer), x2, x3, read(b.plus ? *b.plus : b.x),
                        read(b.ids ? *b.ids : b.x), write(b.y)},
                       params, gpu::Grid::wrap(groups));
}

gpu::Wgsl product_source(std::string_view path, const TensorDesc& w, bool experts,
                         RowInputs::Form form = RowInputs::Form::floats) {
  gpu::Wgsl source = weight_kernel(path, w);
  source.file("ops/matmul/product.wgsl").constant("EXPERTS", experts);
  if (form != RowInputs::Form::residual) source.file("ops/matmul/product_bindings.wgsl");
  if (form == RowInputs::Form::floats) return source.file("ops/matmul/x_f32.wgsl");
  if (form == RowInputs::Form::halves) return source.file("ops/matmul/x_halves.wgsl");
  source.file("ops/matmul/codes.wgsl").file("ops/matmul/dot_int8.wgsl");
  if (form == RowInputs::Form::codes) return source.file("ops/matmul/x_int8.wgsl");
  if (form == RowInputs::Form::parts) return source.file("ops/matmul/x_parts.wgsl");
  return source.file(form == RowInputs::Form::rounded ? "ops/matmul/x_rounded.wgsl" : "ops/matmul/x_residual.wgsl");
}

std::string form_key(const RowInputs& inputs, std::uint32_t blocks) {
  switch (inputs.form) {
    case RowInputs::Form::codes: return "_int8";
    case RowInputs::Form::rounded: return cat("_rounded", blocks);
    case RowInputs::Form::residual: return cat("_residual", blocks);
    case RowInputs::Form::parts: return cat("_parts", blocks, "_", inputs.splits, "_", inputs.head_width);
    default: return "";
  }
}

}  // namespace

namespace {

constexpr std::uint32_t kBroadcastBatch = 16;  // rows of x that a thread of broadcast.wgsl does

}  // namespace

ForwardKernel forward_kernel(const gpu::Capabilities& caps, std::uint64_t m) {
  constexpr std::uint64_t kTileRows = 9, kBroadcastRows = 5;  // from which they pay
  if (!caps.is_cpu()) return m >= kTileRows ? ForwardKernel::tiles : ForwardKernel::rows;
  const bool known = caps.subgroups && caps.subgroup_min == caps.subgroup_max && caps.subgroup_max > 0 &&
                     kBroadcastBatch % caps.subgroup_max == 0;
  return known && m >= kBroadcastRows ? ForwardKernel::broadcast : ForwardKernel::rows;
}

namespace {

// Of a subgroup's lanes those that share a row of `blocks` blocks: half or a quarter where more would have nothing to
// do. Where rows are not `many`, only if those do them in one turn.
std::uint32_t team_lanes(std::uint32_t subgroup, std::uint64_t blocks, bool many) {
  const auto turns = [&](std::uint32_t lanes) { return pieces(blocks, lanes) * lanes; };
  std::uint32_t best = subgroup;
  for (const std::uint32_t lanes : {subgroup / 2, subgroup / 4})
    if (lanes >= 8 && (many || blocks <= lanes) && 5 * turns(lanes) <= 4 * turns(best)) best = lanes;
  return best;
}

// Of one row of x on a GPU; the numbers are those that were fastest (docs/performance.md). Where there are rows enough
// for the whole device: more of them for a team, which then reads x less often. Where rows are short: smaller teams,
// which make more rows for a workgroup as well. Where they are few or long: several teams for a row.
RowsShape one_row_shape(std::uint32_t most_threads, std::uint32_t subgroup, std::uint64_t n, std::uint64_t k) {
  const bool many = n >= 6144;
  const std::uint32_t whole = subgroup ? subgroup : 32;
  std::uint32_t lanes = subgroup ? team_lanes(subgroup, pieces(k, 32), many) : whole;
  std::uint32_t threads = 512, parts = 1, rows = 1;
  if (subgroup && n >= 65536 && k <= 4096) {  // an output head
    lanes = 8;
  } else if (lanes < whole) {
    threads = many ? 768 : 256;
  } else if (n >= 8192) {
    rows = n >= 16384 ? 2 : 3;
    threads = 1024;
  } else if (n <= 256) {
    parts = 4;
  } else if (k >= 4096) {
    parts = 2;
    threads = 1024;
  }
  threads = std::min(threads, most_threads);
  return {lanes, threads / lanes, std::min(parts, threads / 128), rows, 1, subgroup};
}

}  // namespace

RowsShape rows_shape(const gpu::Capabilities& caps, std::uint64_t n, std::uint64_t k, std::uint64_t m) {
  const bool known = caps.subgroups && caps.subgroup_min == caps.subgroup_max && caps.subgroup_max <= 64;
  const std::uint32_t batch = m <= 1 ? 1 : m <= 2 ? 2 : m <= 4 ? 4 : 8;
  if (caps.is_cpu()) {
    const std::uint32_t lanes = known ? caps.subgroup_max : 1, subgroup = known ? lanes : 0;
    const std::uint32_t rows = batch == 1 ? 8 : 1;  // loads are what takes time there, those of x as well
    return {lanes, 64 / lanes, 1, rows, std::min(batch, 4u), subgroup};
  }
  const std::uint32_t subgroup = known && caps.subgroup_max >= 8 ? caps.subgroup_max : 0,
                      most_threads = std::min(1024u, caps.max_invocations / 256 * 256);
  if (batch == 1) return one_row_shape(most_threads, subgroup, n, k);
  const std::uint32_t lanes = subgroup ? subgroup : 32,
                      rows = n >= 16384  ? 4
                             : n >= 8192 ? 3
                             : n >= 4096 ? 2
                                         : 1,
                      parts = rows > 1    ? 1
                              : k >= 8192 ? 4
                              : k >= 4096 ? 2
                                          : 1,
                      threads = std::min(256 * parts, most_threads);
  return {lanes, threads / lanes, std::min(parts, threads / 256), rows, batch, subgroup};
}

bool takes_int8(const gpu::Capabilities& caps, Precision precision, DType w) {
  return precision == Precision::fast && caps.packed_dot && info(w).quantised;
}

Result<RowInputs> record_inputs(GpuCall& call, const GpuView& x, DType w, const RowsShape& shape) {
  RowInputs inputs;
  const std::uint64_t columns = x.shape().back(), blocks = x.shape().elements() / 32;
  if (columns == 0 || !takes_int8(call.caps, call.precision, w)) return inputs;
  // On a CPU driver every workgroup's rounding would be real work: there, and where the rows are many, it is done once.
  const bool fits = shape.workgroup_bytes(columns / 32) <= call.caps.workgroup_memory;
  if (!call.caps.is_cpu() && x.shape().rows() <= 8 && fits) {
    inputs.form = RowInputs::Form::rounded;
    return inputs;
  }
  auto codes = call.scratch(0, blocks * 32);
  if (!codes) return failed(codes);
  auto scales = call.scratch(1, blocks * 8);
  if (!scales) return failed(scales);
  const struct {
    std::uint32_t blocks, pad[3];
  } params{static_cast<std::uint32_t>(blocks), {}};
  const auto source = [] {
    return gpu::Wgsl("ops/matmul/quantise.wgsl").file("ops/matmul/codes.wgsl").file("ops/matmul/round.wgsl");
  };
  if (auto ok = call.dispatch("quantise", source, {read(x), gpu::write(**codes), gpu::write(**scales)}, params,
                              gpu::Grid::wrap(pieces(blocks, 64)));
      !ok)
    return failed(ok);
  return RowInputs{RowInputs::Form::codes, *codes, *scales};
}

Result<> record_rows(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                     const RowInputs& inputs) {
  const TensorDesc& w = b.w.desc;
  const bool experts = b.ids != nullptr, aligned = w.shape.back() % 4 == 0;
  const std::uint64_t n = experts ? params.n : params.rows;
  const RowsShape shape = rows_shape(call.caps, n, w.shape.back(), experts ? 1 : params.m);
  params.tiles = static_cast<std::uint32_t>(pieces(n, shape.group_rows()));
  const std::uint32_t weight_rows = shape.rows * (b.gated ? 2 : 1), each = shape.vectors(params.w.blocks),
                      // what is loaded early takes registers, which many rows need themselves
      early = b.step ? each : std::min(each, shape.rows > 2 ? 1u : 4u);
  const auto source = [&] {
    gpu::Wgsl text = product_source("ops/matmul/rows.wgsl", w, experts, inputs.form);
    if (inputs.rounds()) {
      text.constant("BLOCKS", params.w.blocks).constant("EARLY", early).file("ops/matmul/codes_made.wgsl");
      if (shape.subgroup)
        text.file("ops/matmul/round_lanes.wgsl");
      else
        text.file("ops/matmul/round_shared.wgsl").file("ops/matmul/round.wgsl");
    }
    if (inputs.form == RowInputs::Form::parts)
      text.constant("SPLITS", inputs.splits).constant("HEAD_WIDTH", inputs.head_width);
    if (b.step) text.constant("NEXT", b.step->w_next != nullptr).constant("SCALED", b.step->scale != nullptr);
    text.constant("X_ALIGNED", aligned).constant("LANES", shape.lanes).constant("TEAMS", shape.teams);
    text.constant("PARTS", shape.parts).constant("ROWS", shape.rows).constant("BATCH", shape.batch);
    text.constant("WEIGHT_ROWS", weight_rows);
    text.file(b.gated    ? "ops/matmul/result_gated.wgsl"
              : b.factor ? "ops/matmul/result_gelu.wgsl"
                         : "ops/matmul/result_plain.wgsl");
    if (b.gated || b.factor) text.file("ops/elementwise/functions.wgsl");
    if (shape.subgroup)
      return text.enable("subgroups").constant("SUBGROUP", shape.subgroup).file("ops/matmul/lanes_subgroup.wgsl");
    return text.file("ops/matmul/lanes_shared.wgsl");
  };
  const std::string key = cat(experts ? "expert_" : "",
                              b.gated    ? "gated_rows_"
                              : b.factor ? "gelu_rows_"
                                         : "matmul_rows_",
                              weight_key(w), form_key(inputs, params.w.blocks), b.step && b.step->w_next ? "_next" : "",
                              b.step && b.step->scale ? "_scaled" : "", aligned ? "_" : "_x_odd_", shape.lanes, "s",
                              shape.subgroup, "_", shape.teams, "_", shape.parts, "_", shape.rows, "_", shape.batch);
  return dispatch(call, key, source, b, part, params, inputs, params.tiles * pieces(params.m, shape.batch));
}

Result<> record_broadcast(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params) {
  constexpr std::uint32_t kThreads = 32, kRows = 4;
  const std::uint32_t lanes = call.caps.subgroup_max;
  const bool aligned = params.x_stride % 4 == 0;
  params.tiles = static_cast<std::uint32_t>(pieces(params.m, kBroadcastBatch));
  const auto source = [&] {
    return product_source("ops/matmul/broadcast.wgsl", b.w.desc, false)
        .enable("subgroups")
        .constant("X_ALIGNED", aligned)
        .constant("THREADS", kThreads)
        .constant("ROWS", kRows)
        .constant("BATCH", kBroadcastBatch)
        .constant("LANES", lanes)
        .constant("LOADS", kBroadcastBatch / lanes);
  };
  const std::string key = cat("matmul_broadcast_", weight_key(b.w.desc), aligned ? "" : "_x_odd");
  return dispatch(call, key, source, b, part, params, {}, params.tiles * pieces(params.rows, kThreads * kRows));
}

Result<> record_columns(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                        bool x_transposed) {
  const bool experts = b.ids != nullptr;
  const std::uint32_t batch = experts || params.m == 1 ? 1 : 4;
  const auto source = [&] {
    return product_source("ops/matmul/columns.wgsl", b.w.desc, experts)
        .constant("X_ALIGNED", false)
        .constant("X_TRANSPOSED", x_transposed)
        .constant("BATCH", batch);
  };
  const std::string key = cat(experts ? "expert_columns_" : "matmul_columns_", weight_key(b.w.desc), "_", batch,
                              x_transposed ? "_outer" : "");
  return dispatch(call, key, source, b, part, params, {}, pieces(pieces(params.m, batch) * params.w.blocks, 64));
}

namespace {

constexpr std::uint32_t kBusy = 256;            // workgroups that keep a GPU busy
constexpr std::uint32_t kMatrixMemory = 24576;  // of a workgroup of matrix.wgsl

// Runs that the terms of a product of `groups` tiles are cut into, none shorter than `shortest`: so many that there are
// `busy` workgroups.
std::uint32_t splits_for(const ProductBuffers& b, std::uint64_t groups, std::uint64_t busy, std::uint32_t terms,
                         std::uint32_t shortest) {
  if (groups >= busy || terms < 2 * shortest || b.w.parts.size() > 1 || !b.alone) return 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(terms / shortest, pieces(busy, groups)));
}

// A product by `groups` workgroups for each of params.splits runs of terms.
Result<> dispatch_splits(GpuCall& call, std::string_view key, const auto& source, const ProductBuffers& b,
                         const GpuPart& part, const ProductParams& params, const RowInputs& inputs,
                         std::uint64_t groups, bool transposed) {
  if (params.splits == 1) return dispatch(call, key, source, b, part, params, inputs, groups);
  const std::uint32_t columns = transposed ? params.n : params.rows;
  auto parts = call.scratch(3, TensorDesc{DType::F32, {params.m, params.splits, columns}});
  if (!parts) return failed(parts);
  const ProductBuffers to_parts{b.x, b.w, *parts};
  if (auto ok = dispatch(call, key, source, to_parts, part, params, inputs, groups * params.splits); !ok) return ok;
  const PartSums sums{columns, params.splits, params.n, transposed ? 0 : params.first, params.plus, params.scale};
  return record_part_sums(call, parts->buffer(), params.m, sums, b.plus ? *b.plus : b.x, b.y);
}

Result<> record_matrix(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                       const RowInputs& inputs, bool transposed) {
  // With long runs of terms the larger tiles pay, however few: their sums are done in parts. Each part is memory too,
  // so runs are not short.
  constexpr std::uint32_t kShortest = 384;
  const std::uint64_t across = pieces(transposed || b.gated ? params.n : params.rows, b.gated ? 64 : 128),
                      large = pieces(params.m, 128) * across;
  const std::uint32_t terms = transposed ? params.rows : params.w.columns;
  params.splits = splits_for(b, large, 2 * kBusy, terms, kShortest);
  const std::uint32_t mt = !b.ids && large * params.splits >= kBusy ? 4 : 2;
  if (mt == 2) params.splits = splits_for(b, pieces(params.m, 64) * across, kBusy, terms, kShortest);
  if (!b.ids) params.tiles = static_cast<std::uint32_t>(pieces(params.m, 32 * mt));
  const auto source = [&] {
    return with_matrices(product_source("ops/matmul/matrix.wgsl", b.w.desc, b.ids, inputs.form))
        .file("ops/matmul/tile_rows.wgsl")
        .file("ops/elementwise/functions.wgsl")
        .constant("TRANSPOSED", transposed)
        .constant("GATED", b.gated)
        .constant("MT", mt)
        .constant("X_QUADS", 2 * mt);
  };
  const std::string key = cat(b.ids ? "expert_" : "", b.gated ? "gated_matrix_" : "matmul_matrix_",
                              weight_key(b.w.desc), transposed ? "_t_" : "_", mt);
  return dispatch_splits(call, key, source, b, part, params, inputs, params.tiles * across, transposed);
}

}  // namespace

Result<RowInputs> record_tile_inputs(GpuCall& call, const GpuView& x, const GpuView& w, bool transposed,
                                     std::uint64_t row0, std::uint64_t row1) {
  RowInputs inputs;
  const std::uint64_t rows = x.shape().rows(), columns = x.shape().back();
  constexpr std::uint64_t kFew = 32;  // rows or columns for which most of a tile would be for nothing
  if (call.precision != Precision::fast || !has_matrix_units(call.caps, kMatrixMemory) || rows < kFew || columns == 0 ||
      (!info(w.desc.dtype).quantised && columns < 2 * kFew) || (transposed ? w.shape().back() : row1 - row0) < kFew ||
      w.shape().back() % 4)
    return inputs;
  if (transposed)  // x is read by fours from where a part begins
    for (const GpuPart& part : w.parts)
      if (const auto [from, to] = part.within(row0, row1); from < to && ((from - row0) % 4 || (to - from) % 4))
        return inputs;
  const std::uint64_t blocks = pieces(columns, 32);
  auto halves = call.scratch(0, rows * blocks * 64);
  if (!halves) return failed(halves);
  auto scales = call.scratch(1, rows * 4);
  if (!scales) return failed(scales);
  if (auto ok = record_halves(call, x, rows, **halves, **scales); !ok) return failed(ok);
  return RowInputs{RowInputs::Form::halves, *halves, *scales};
}

Result<> record_tiles(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                      const RowInputs& inputs, bool transposed, bool x_transposed) {
  if (inputs.form == RowInputs::Form::halves) return record_matrix(call, b, part, params, inputs, transposed);
  const std::uint32_t terms = transposed ? params.rows : params.w.columns,
                      columns = transposed ? params.n : params.rows;
  const bool aligned = !x_transposed && params.x_stride % 4 == 0 && terms % 4 == 0 && params.first % 4 == 0;
  if (!b.ids) params.tiles = static_cast<std::uint32_t>(pieces(params.m, kExpertTile));
  const std::uint64_t groups = params.tiles * pieces(columns, 64);
  params.splits = splits_for(b, groups, kBusy, terms, 128);
  const auto source = [&] {
    return product_source("ops/matmul/tiles.wgsl", b.w.desc, b.ids)
        .file("ops/matmul/tile_rows.wgsl")
        .constant("X_ALIGNED", aligned)
        .constant("TRANSPOSED", transposed)
        .constant("X_TRANSPOSED", x_transposed);
  };
  const std::string key = cat(b.ids ? "expert_" : "", "matmul_tiles_", weight_key(b.w.desc),
                              x_transposed ? "_outer"
                              : transposed ? "_t"
                                           : "",
                              aligned ? "" : "_x_odd");
  return dispatch_splits(call, key, source, b, part, params, {}, groups, transposed);
}

}  // namespace rullama
