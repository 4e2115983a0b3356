// The GPU forms. Forward pass and gradients are four jobs over the same three kernels (common.wgsl); the forward
// job for one row has another one (row_gpu.cpp).
#include "ops/attention/attention_gpu.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "ops/reduce/row_plan.h"
#include "ops/sum_parts.h"

namespace rullama::attention_detail {

// The types of elements, and reading one.
gpu::Wgsl with_elements(std::string_view kernel, const Sizes& n, DType stored) {
  const bool fours = n.d % 4 == 0;
  gpu::Wgsl source(cat("ops/attention/", kernel, ".wgsl"));
  source.alias("Element", fours ? "vec4f" : "f32");
  source.text(fours ? "fn inner(a: vec4f, b: vec4f) -> f32 { return dot(a, b); }"
                    : "fn inner(a: f32, b: f32) -> f32 { return a * b; }");
  if (stored == DType::F16)
    return source.alias("Stored", "vec2u")
        .text("fn wide(x: vec2u) -> vec4f { return vec4f(unpack2x16float(x.x), unpack2x16float(x.y)); }");
  return source.alias("Stored", "Element").text("fn wide(x: Element) -> Element { return x; }");
}

std::string key_of(std::string_view kernel, const Sizes& n, DType stored) {
  return cat("attention_", kernel, n.d % 4 ? "_odd_" : "_", name(stored));
}

std::uint32_t span_of(const Setup& setup, const Sizes& n) {
  const std::uint64_t window = setup.options.window;
  if (!window) return n.slots;
  const bool ahead = setup.mask == Mask::all || setup.mask == Mask::region;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(n.slots, ahead ? 2 * window + n.rows : window + n.rows - 1));
}

std::uint32_t splits_for(std::uint32_t busy, std::uint32_t units, std::uint32_t span, std::uint32_t shortest) {
  const std::uint32_t wanted = busy / std::max(units, 1u), most = (span + shortest - 1) / shortest;
  return std::clamp(std::min(wanted, most), 1u, kMaxSplits);
}

Result<> combine(GpuCall& call, const Sizes& n, std::uint32_t splits, const PartBuffers& parts, const GpuView& out,
                 const GpuView& lse) {
  const struct {
    std::uint32_t queries, width, splits, pad = 0;
  } params{n.rows * n.heads, width(n), splits};
  const auto dispatch = [&](std::string_view key, const auto& source, gpu::Grid grid) {
    return call.dispatch(key, source, {gpu::read(*parts.sums), gpu::read(*parts.stats), write(out), write(lse)}, params,
                         grid);
  };
  const auto element = n.d % 4 == 0 ? "vec4f" : "f32";
  constexpr std::uint32_t few_parts = 4, group = 64, many_elements = 512 * group;
  const std::uint64_t elements = std::uint64_t{params.queries} * params.width;
  if (splits <= few_parts && elements >= many_elements) {
    const auto source = [&] {
      return gpu::Wgsl("ops/attention/combine_few.wgsl").alias("Element", element).constant("GROUP", group);
    };
    return dispatch(key_of("combine_few", n, DType::F32), source, gpu::Grid::wrap((elements + group - 1) / group));
  }
  RowPlan rows = plan_rows(call.caps, params.queries, n.d);
  rows.four = false;
  // lines of lanes that share the parts
  const bool large = !call.caps.is_cpu() && rows.way != RowPlan::Way::thread;
  if (large) rows.group = kThreads;
  const std::uint32_t lanes = rows.way == RowPlan::Way::thread ? 1 : rows.group;
  const std::uint32_t lines = large ? std::bit_floor(std::max(lanes / params.width, 1u)) : 1;
  const auto source = [&] {
    return rows.source("ops/attention/combine.wgsl")
        .alias("Element", element)
        .constant("LINES", lines)
        .constant("COLUMNS", lanes / lines);
  };
  return dispatch(rows.key(cat(key_of("combine", n, DType::F32), "_", lines)), source, rows.grid(params.queries));
}

Result<PartBuffers> part_buffers(GpuCall& call, std::uint64_t parts, std::uint32_t d, bool stats) {
  auto sums = call.scratch(0, parts * d * sizeof(float));
  if (!sums) return failed(sums);
  if (!stats) return PartBuffers{*sums};
  auto pairs = call.scratch(1, parts * 2 * sizeof(float));
  if (!pairs) return failed(pairs);
  return PartBuffers{*sums, *pairs};
}

namespace {

enum class Job : std::uint32_t { forward, gradient_q, gradient_k, gradient_v };  // numbered as in common.wgsl

enum class Kernel : std::uint8_t {
  lanes,   // one thread a row, no barriers: CPU drivers, widths that are no multiple of 4
  decode,  // a workgroup for few queries and a run of keys
  tile,    // a workgroup for a tile of rows
};

constexpr std::uint32_t kDecodeQueries = 16;  // queries per key/value head up to which decode is chosen
constexpr std::uint32_t kDecodeKeys = 32;     // keys of a step of decode

struct Sources {  // of the bindings of common.wgsl
  const GpuView *a1, *b1, *a2, *b2;
};

bool by_key(Job job) { return job == Job::gradient_k || job == Job::gradient_v; }

// Rows of the result per key/value head.
std::uint32_t rows_per_head(const Sizes& n, Job job) { return by_key(job) ? n.slots : n.rows * n.group; }

Kernel choose(const gpu::Capabilities& caps, const Sizes& n, Job job) {
  const std::uint64_t tiles = rows_per_head(n, job) / 32 + 1;
  if (caps.is_cpu() || n.d % 4 || caps.max_invocations < kThreads || tiles > caps.max_workgroups) return Kernel::lanes;
  return job == Job::forward && rows_per_head(n, job) <= kDecodeQueries ? Kernel::decode : Kernel::tile;
}

struct TileShape {
  std::uint32_t rows, cols, keys, tile;  // constants of tile.wgsl
};

TileShape tile_shape(std::uint32_t d, std::uint32_t memory) {
  constexpr std::uint32_t depth = 4;
  const bool large = memory >= 32768;
  TileShape s{};
  s.rows = d > 256 ? 32 : 64;
  s.cols = large || s.rows == 32 ? 64 : 32;
  const std::uint32_t factors = depth * (s.rows + 1 + s.cols + 1);
  s.keys = std::min(std::bit_floor((large ? 768 : factors) / (d / 4)), 16u);
  s.tile = std::max(factors, s.keys * (d / 4));
  return s;
}

// Queries of a workgroup of decode: the `queries` in equal parts, as many as 16 KiB hold.
std::uint32_t decode_queries(std::uint32_t queries, std::uint32_t d) {
  const std::uint32_t most = std::min(8u, 16000 / (4 * d + 4 * kThreads + 4 * kDecodeKeys + 12));
  const std::uint32_t groups = (queries + most - 1) / most;
  return (queries + groups - 1) / groups;
}

Result<> one_binding(const GpuCall& call, const GpuView& view) {
  if (view.parts.size() == 1) return {};
  return fail(cat("attention: a cache of ", view.desc.str(), " is larger than the ",
                  bytes_text(static_cast<double>(call.caps.max_binding_bytes)),
                  " that this device binds at once; use a smaller context"));
}

struct Constant {
  std::string_view name;
  std::uint32_t value;
};

// How a job is dispatched.
struct Plan {
  std::string_view file;
  std::uint32_t threads, splits;
  gpu::Grid grid;
  std::vector<Constant> constants;
};

Plan plan_job(const gpu::Capabilities& caps, const Setup& setup, const Sizes& n, Job job) {
  const bool forward = job == Job::forward;
  const std::uint32_t span = span_of(setup, n), rows = rows_per_head(n, job);
  Plan plan{"lanes", caps.is_cpu() ? 16u : 64u, 1, {}, {}};
  switch (choose(caps, n, job)) {
    case Kernel::lanes: {
      if (forward) plan.splits = splits_for(512, rows * n.kv_heads, span, 16);
      const std::uint64_t threads = std::uint64_t{rows} * n.kv_heads * plan.splits;
      plan.grid = gpu::Grid::wrap((threads + plan.threads - 1) / plan.threads);
      plan.constants = {{"CAPACITY", std::max(std::bit_ceil(width(n)), 16u)}};
      break;
    }
    case Kernel::decode: {
      const std::uint32_t queries = decode_queries(rows, n.d), groups = (rows + queries - 1) / queries;
      plan.file = "decode";
      plan.threads = kThreads;
      plan.splits = splits_for(512, n.kv_heads * groups, span, kDecodeKeys);
      plan.grid = {plan.splits, n.kv_heads, groups};
      plan.constants = {
          {"WIDTH", width(n)}, {"QUERIES", queries}, {"LINES", std::min(kThreads / width(n), kDecodeKeys)}};
      break;
    }
    case Kernel::tile: {
      const TileShape tile = tile_shape(n.d, caps.workgroup_memory);
      const std::uint32_t tiles = (rows + tile.rows - 1) / tile.rows;
      plan.file = "tile";
      plan.threads = kThreads;
      if (forward) plan.splits = splits_for(256, n.kv_heads * tiles, span, 2 * tile.cols);
      // few keys have all queries of their heads as partners
      if (by_key(job)) plan.splits = splits_for(512, n.kv_heads * tiles, n.rows * n.group, 4 * tile.cols);
      plan.splits = std::min(plan.splits, std::max(caps.max_workgroups / tiles, 1u));
      plan.grid = {tiles * plan.splits, n.kv_heads, 1};
      plan.constants = {
          {"WIDTH", width(n)}, {"ROWS", tile.rows}, {"COLS", tile.cols}, {"KEYS", tile.keys}, {"TILE", tile.tile}};
      break;
    }
  }
  plan.constants.push_back({"THREADS", plan.threads});
  plan.constants.push_back({"JOB", static_cast<std::uint32_t>(job)});
  return plan;
}

// Records one job. `stats` is what forward.wgsl or gradient.wgsl says; the forward job writes call.out.
Result<> record_job(const Setup& setup, GpuCall& call, const Sizes& n, Job job, const Sources& src,
                    const Ranges& ranges, gpu::Binding stats, const GpuView& result) {
  const DType stored = src.b1->desc.dtype;
  const Plan plan = plan_job(call.caps, setup, n, job);
  const std::uint64_t parts = std::uint64_t{rows_per_head(n, job)} * n.kv_heads * plan.splits;
  PartBuffers in_parts;
  if (plan.splits > 1) {
    auto made = part_buffers(call, parts, n.d, job == Job::forward);
    if (!made) return failed(made);
    in_parts = *made;
    if (in_parts.stats) stats = gpu::write(*in_parts.stats);
  }
  std::string key = cat(key_of(plan.file, n, stored), plan.splits > 1 ? "_split" : "");
  for (const Constant& c : plan.constants) key += cat("_", c.value);
  const auto source = [&] {
    gpu::Wgsl text = with_elements(plan.file, n, stored);
    text.file("ops/attention/bindings.wgsl")
        .file("ops/attention/common.wgsl")
        .file(job == Job::forward ? "ops/attention/forward.wgsl" : "ops/attention/gradient.wgsl")
        .alias("Result", "Element")
        .constant("SPLIT", plan.splits > 1);
    for (const Constant& c : plan.constants) text.constant(c.name, c.value);
    return text;
  };
  auto ok = call.dispatch(key, source,
                          {read(*src.a1), read(*src.b1), read(*src.a2), read(*src.b2), stats, ranges.positions,
                           ranges.bounds, in_parts.sums ? gpu::write(*in_parts.sums) : write(result)},
                          Params(setup, n, plan.splits, parts), plan.grid);
  if (!ok || plan.splits == 1) return ok;
  if (job != Job::forward)
    return record_part_sums(call, *in_parts.sums, parts / plan.splits, {n.d, plan.splits, n.d}, *src.a1, result);
  return combine(call, n, plan.splits, in_parts, call.out[0], call.out[1]);
}

}  // namespace

Result<> forward_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1], &v = call.in[2];
  const Sizes n(q.shape(), k.shape());
  if (q.shape().elements() == 0) return {};
  for (const GpuView* view : {&k, &v})
    if (auto ok = one_binding(call, *view); !ok) return ok;
  if (has_row_kernel(call.caps, n))
    return record_row(setup, call, n, {q, k, v, Ranges(setup, call, 3), call.out[0], call.out[1]});
  if (has_matrix_kernel(call, n, k.desc.dtype))
    return record_matrix(setup, call, n, {q, k, v, Ranges(setup, call, 3), call.out[0], call.out[1]});
  return record_job(setup, call, n, Job::forward, {&q, &k, &q, &v}, Ranges(setup, call, 3), write(call.out[1]),
                    call.out[0]);
}

Result<> backward_q_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1], &v = call.in[2], &dout = call.in[5], &stats = call.out[1];
  const Sizes n(q.shape(), k.shape());
  if (q.shape().elements() == 0) return {};
  const struct {
    std::uint32_t threads, width, pad[2];
  } params{n.rows * n.heads, width(n), {}};
  const auto source = [&] { return with_elements("delta", n, DType::F32); };
  if (auto ok = call.dispatch(key_of("delta", n, DType::F32), source,
                              {read(call.in[3]), read(dout), read(call.in[4]), write(stats)}, params,
                              gpu::Grid::wrap((params.threads + 63) / 64));
      !ok)
    return ok;
  return record_job(setup, call, n, Job::gradient_q, {&q, &k, &dout, &v}, Ranges(setup, call, 6), read(stats),
                    call.out[0]);
}

Result<> backward_kv_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1], &v = call.in[2], &stats = call.in[3], &dout = call.in[4];
  const Sizes n(q.shape(), k.shape());
  if (k.shape().elements() == 0) return {};
  const Ranges ranges(setup, call, 5);
  auto ok = record_job(setup, call, n, Job::gradient_k, {&k, &q, &v, &dout}, ranges, read(stats), call.out[0]);
  if (!ok) return ok;
  return record_job(setup, call, n, Job::gradient_v, {&k, &q, &v, &dout}, ranges, read(stats), call.out[1]);
}

Result<> probabilities_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1];
  const Sizes n(q.shape(), k.shape());
  const std::uint64_t threads = call.out[0].shape().elements();
  if (threads == 0) return {};
  if (auto ok = one_binding(call, k); !ok) return ok;
  const Ranges ranges(setup, call, 3);
  const DType stored = k.desc.dtype;
  const auto source = [&] {
    return with_elements("probabilities", n, stored)
        .file("ops/attention/bindings.wgsl")
        .file("ops/attention/common.wgsl")
        .alias("Result", "f32")
        .constant("JOB", 0u);
  };
  return call.dispatch(
      key_of("probabilities", n, stored), source,
      {read(q), read(k), read(q), read(k), read(call.in[2]), ranges.positions, ranges.bounds, write(call.out[0])},
      Params(setup, n, 1, threads), gpu::Grid::wrap((threads + 63) / 64));
}

}  // namespace rullama::attention_detail
