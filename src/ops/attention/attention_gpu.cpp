// The GPU forms. Forward pass and gradients are four jobs over the same three kernels (common.wgsl).
#include <bit>

#include "base/text.h"
#include "ops/attention/attention_op.h"

namespace rullama::attention_detail {
namespace {

enum class Job : std::uint32_t { forward, gradient_q, gradient_k, gradient_v };  // numbered as in common.wgsl

enum class Kernel : std::uint8_t {
  lanes,   // one thread a row, no barriers: CPU drivers, widths that are no multiple of 4
  decode,  // a workgroup for few queries and a run of keys
  tile,    // a workgroup for a tile of rows
};

constexpr std::uint32_t kThreads = 256;       // of a workgroup of decode and tile
constexpr std::uint32_t kDecodeQueries = 16;  // queries per key/value head up to which decode is chosen
constexpr std::uint32_t kDecodeKeys = 32;     // keys of a step of decode
constexpr std::uint32_t kMaxSplits = 128;

struct Sources {  // of the bindings of common.wgsl
  const GpuView *a1, *b1, *a2, *b2;
};

bool by_key(Job job) { return job == Job::gradient_k || job == Job::gradient_v; }

// Rows of the result per key/value head.
std::uint32_t rows_per_head(const Sizes& n, Job job) { return by_key(job) ? n.slots : n.rows * n.group; }

Kernel choose(const gpu::Capabilities& caps, const Sizes& n, Job job) {
  const std::uint64_t tiles = rows_per_head(n, job) / 32 + 1;
  if (caps.is_cpu() || n.d % 4 || caps.max_invocations < kThreads || tiles * kMaxSplits > caps.max_workgroups)
    return Kernel::lanes;
  return job == Job::forward && rows_per_head(n, job) <= kDecodeQueries ? Kernel::decode : Kernel::tile;
}

// Keys that one row may see at most.
std::uint32_t span_of(const Setup& setup, const Sizes& n) {
  const std::uint64_t window = setup.options.window;
  return window ? static_cast<std::uint32_t>(std::min<std::uint64_t>(n.slots, 2 * window + n.rows)) : n.slots;
}

// Runs that the keys are cut into: enough that `units` x runs keep a device busy, none shorter than `shortest` keys.
std::uint32_t splits_for(std::uint32_t busy, std::uint32_t units, std::uint32_t span, std::uint32_t shortest) {
  const std::uint32_t wanted = busy / std::max(units, 1u), most = (span + shortest - 1) / shortest;
  return std::clamp(std::min(wanted, most), 1u, kMaxSplits);
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

gpu::Wgsl& elements(gpu::Wgsl& source, const Sizes& n, DType stored) {
  const bool fours = n.d % 4 == 0;
  source.constant("D", n.d).constant("LANES", fours ? 4u : 1u).alias("Element", fours ? "vec4f" : "f32");
  source.text(fours ? "fn inner(a: vec4f, b: vec4f) -> f32 { return dot(a, b); }"
                    : "fn inner(a: f32, b: f32) -> f32 { return a * b; }");
  if (stored == DType::F16)
    return source.alias("Stored", "vec2u")
        .text("fn wide(x: vec2u) -> vec4f { return vec4f(unpack2x16float(x.x), unpack2x16float(x.y)); }");
  return source.alias("Stored", "Element").text("fn wide(x: Element) -> Element { return x; }");
}

gpu::Wgsl common(std::string_view kernel, const Setup& setup, const Sizes& n, DType stored) {
  gpu::Wgsl source(cat("ops/attention/", kernel, ".wgsl"));
  source.file("ops/attention/common.wgsl")
      .constant("GROUP", n.group)
      .constant("MASK", static_cast<std::uint32_t>(setup.mask));
  return elements(source, n, stored);
}

std::string common_key(std::string_view kernel, const Setup& setup, const Sizes& n, DType stored) {
  return cat("attention_", kernel, "_d", n.d, "_g", n.group, "_", static_cast<int>(setup.mask), "_", name(stored));
}

struct Params {  // of common.wgsl
  std::uint32_t rows, heads, kv_heads, slots, window, splits;
  float scale;
  std::uint32_t threads;
  Params(const Setup& setup, const Sizes& n, std::uint32_t splits_, std::uint64_t threads_ = 0)
      : rows(n.rows),
        heads(n.heads),
        kv_heads(n.kv_heads),
        slots(n.slots),
        window(setup.options.window),
        splits(splits_),
        scale(setup.options.scale),
        threads(static_cast<std::uint32_t>(threads_)) {}
};

struct Ranges {  // bindings 5 and 6; a tensor that is there anyway stands in for an absent one
  gpu::Binding positions, bounds;
  Ranges(const Setup& setup, const GpuCall& call, std::size_t at)
      : positions(read(setup.range_inputs() > 0 ? call.in[at] : call.in[0])),
        bounds(read(setup.range_inputs() > 1 ? call.in[at + 1] : call.in[0])) {}
};

Result<> one_binding(const GpuCall& call, const GpuView& view) {
  if (view.parts.size() == 1) return {};
  return fail(cat("attention: a cache of ", view.desc.str(), " is larger than the ",
                  bytes_text(static_cast<double>(call.caps.max_binding_bytes)),
                  " that this device binds at once; use a smaller context"));
}

Result<> combine(GpuCall& call, const Sizes& n, std::uint32_t splits, const gpu::Buffer& parts,
                 const gpu::Buffer& stats) {
  const bool fours = n.d % 4 == 0;
  const struct {
    std::uint32_t threads, width, splits, pad = 0;
  } params{n.rows * n.heads * n.d / (fours ? 4 : 1), n.d / (fours ? 4 : 1), splits};
  const auto source = [&] { return gpu::Wgsl("ops/attention/combine.wgsl").alias("Element", fours ? "vec4f" : "f32"); };
  return call.dispatch(fours ? "attention_combine" : "attention_combine_odd", source,
                       {gpu::read(parts), gpu::read(stats), write(call.out[0]), write(call.out[1])}, params,
                       gpu::Grid::wrap((params.threads + 63) / 64));
}

// Records one job. `stats` is what forward.wgsl or gradient.wgsl says; the forward job writes call.out.
Result<> record_job(const Setup& setup, GpuCall& call, const Sizes& n, Job job, const Sources& src,
                    const Ranges& ranges, gpu::Binding stats, gpu::Binding result) {
  const bool forward = job == Job::forward;
  const Kernel kernel = choose(call.caps, n, job);
  const DType stored = src.b1->desc.dtype;
  const std::uint32_t span = span_of(setup, n);
  const TileShape tile = tile_shape(n.d, call.caps.workgroup_memory);
  const std::uint32_t group_queries = decode_queries(n.rows * n.group, n.d);
  const std::uint32_t decode_groups = (n.rows * n.group + group_queries - 1) / group_queries;
  const std::uint32_t tiles = (rows_per_head(n, job) + tile.rows - 1) / tile.rows;
  const std::uint64_t rows = std::uint64_t{rows_per_head(n, job)} * n.kv_heads;
  std::uint32_t splits = 1;
  if (forward && kernel == Kernel::lanes) splits = splits_for(512, n.rows * n.heads, span, 16);
  if (forward && kernel == Kernel::decode) splits = splits_for(512, n.kv_heads * decode_groups, span, kDecodeKeys);
  if (forward && kernel == Kernel::tile) splits = splits_for(256, n.kv_heads * tiles, span, 2 * tile.cols);

  const gpu::Buffer *parts = nullptr, *part_stats = nullptr;
  if (splits > 1) {
    auto a = call.scratch(0, rows * splits * n.d * sizeof(float));
    if (!a) return failed(a);
    auto b = call.scratch(1, rows * splits * 2 * sizeof(float));
    if (!b) return failed(b);
    parts = *a, part_stats = *b;
    result = gpu::write(*parts);
    stats = gpu::write(*part_stats);
  }

  const std::string_view name = kernel == Kernel::lanes ? "lanes" : kernel == Kernel::decode ? "decode" : "tile";
  const std::uint32_t threads = kernel != Kernel::lanes ? kThreads : call.caps.is_cpu() ? 16 : 64;
  std::string key = cat(common_key(name, setup, n, stored), "_", threads, "_job", static_cast<std::uint32_t>(job),
                        splits > 1 ? "_split" : "");
  if (kernel == Kernel::decode) key += cat("_q", group_queries);
  if (kernel == Kernel::tile) key += cat("_", tile.rows, "x", tile.cols);
  const auto source = [&] {
    gpu::Wgsl text = common(name, setup, n, stored);
    text.file(forward ? "ops/attention/forward.wgsl" : "ops/attention/gradient.wgsl")
        .alias("Result", "Element")
        .constant("JOB", static_cast<std::uint32_t>(job))
        .constant("SPLIT", splits > 1)
        .constant("THREADS", threads);
    if (kernel == Kernel::decode)
      text.constant("QUERIES", group_queries).constant("LINES", std::min(kThreads * 4 / n.d, kDecodeKeys));
    if (kernel == Kernel::tile)
      text.constant("ROWS", tile.rows)
          .constant("COLS", tile.cols)
          .constant("KEYS", tile.keys)
          .constant("TILE", tile.tile);
    return text;
  };
  const Params params(setup, n, splits, rows * splits);
  const gpu::Grid grid = kernel == Kernel::lanes    ? gpu::Grid::wrap((rows * splits + threads - 1) / threads)
                         : kernel == Kernel::decode ? gpu::Grid{splits, n.kv_heads, decode_groups}
                                                    : gpu::Grid{tiles * splits, n.kv_heads, 1};
  auto ok = call.dispatch(
      key, source,
      {read(*src.a1), read(*src.b1), read(*src.a2), read(*src.b2), stats, ranges.positions, ranges.bounds, result},
      params, grid);
  if (!ok || splits == 1) return ok;
  return combine(call, n, splits, *parts, *part_stats);
}

}  // namespace

Result<> forward_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1], &v = call.in[2];
  const Sizes n(q.shape(), k.shape());
  if (q.shape().elements() == 0) return {};
  for (const GpuView* view : {&k, &v})
    if (auto ok = one_binding(call, *view); !ok) return ok;
  return record_job(setup, call, n, Job::forward, {&q, &k, &q, &v}, Ranges(setup, call, 3), write(call.out[1]),
                    write(call.out[0]));
}

Result<> backward_q_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1], &v = call.in[2], &dout = call.in[5], &stats = call.out[1];
  const Sizes n(q.shape(), k.shape());
  if (q.shape().elements() == 0) return {};
  const struct {
    std::uint32_t threads, pad[3];
  } params{n.rows * n.heads, {}};
  const auto source = [&] {
    gpu::Wgsl text("ops/attention/delta.wgsl");
    return elements(text, n, DType::F32);
  };
  if (auto ok = call.dispatch(cat("attention_delta_", n.d), source,
                              {read(call.in[3]), read(dout), read(call.in[4]), write(stats)}, params,
                              gpu::Grid::wrap((params.threads + 63) / 64));
      !ok)
    return ok;
  return record_job(setup, call, n, Job::gradient_q, {&q, &k, &dout, &v}, Ranges(setup, call, 6), read(stats),
                    write(call.out[0]));
}

Result<> backward_kv_gpu(const Setup& setup, GpuCall& call) {
  const GpuView &q = call.in[0], &k = call.in[1], &v = call.in[2], &stats = call.in[3], &dout = call.in[4];
  const Sizes n(q.shape(), k.shape());
  if (k.shape().elements() == 0) return {};
  const Ranges ranges(setup, call, 5);
  auto ok = record_job(setup, call, n, Job::gradient_k, {&k, &q, &v, &dout}, ranges, read(stats), write(call.out[0]));
  if (!ok) return ok;
  return record_job(setup, call, n, Job::gradient_v, {&k, &q, &v, &dout}, ranges, read(stats), write(call.out[1]));
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
    return common("probabilities", setup, n, stored).alias("Result", "f32").constant("JOB", 0u);
  };
  return call.dispatch(
      common_key("probabilities", setup, n, stored), source,
      {read(q), read(k), read(q), read(k), read(call.in[2]), ranges.positions, ranges.bounds, write(call.out[0])},
      Params(setup, n, 1, threads), gpu::Grid::wrap((threads + 63) / 64));
}

}  // namespace rullama::attention_detail
