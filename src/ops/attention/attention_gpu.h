// What the GPU forms of this folder share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/attention/attention_op.h"
#include "ops/rope/turn.h"

namespace rullama::attention_detail {

constexpr std::uint32_t kThreads = 256;  // of a workgroup of decode and tile
constexpr std::uint32_t kMaxSplits = 128;

inline std::uint32_t width(const Sizes& n) { return n.d % 4 ? n.d : n.d / 4; }  // elements of a row

// The types of elements, and reading one.
[[nodiscard]] gpu::Wgsl with_elements(std::string_view kernel, const Sizes& n, DType stored);
[[nodiscard]] std::string key_of(std::string_view kernel, const Sizes& n, DType stored);

struct Params {  // of common.wgsl
  std::uint32_t rows, heads, kv_heads, slots, window, splits;
  float scale;
  std::uint32_t threads, width, group, mask;
  Params(const Setup& setup, const Sizes& n, std::uint32_t splits_, std::uint64_t threads_ = 0)
      : rows(n.rows),
        heads(n.heads),
        kv_heads(n.kv_heads),
        slots(n.slots),
        window(setup.options.window),
        splits(splits_),
        scale(setup.options.scale),
        threads(static_cast<std::uint32_t>(threads_)),
        width(attention_detail::width(n)),
        group(n.group),
        mask(static_cast<std::uint32_t>(setup.mask)) {}
};

struct Ranges {  // bindings 5 and 6; a tensor that is there anyway stands in for an absent one
  gpu::Binding positions, bounds;
  Ranges(gpu::Binding positions_, gpu::Binding bounds_) : positions(positions_), bounds(bounds_) {}
  Ranges(const Setup& setup, const GpuCall& call, std::size_t at)
      : positions(read(setup.range_inputs() > 0 ? call.in[at] : call.in[0])),
        bounds(read(setup.range_inputs() > 1 ? call.in[at + 1] : call.in[0])) {}
};

// Keys that one row may see at most.
[[nodiscard]] std::uint32_t span_of(const Setup& setup, const Sizes& n);
// Runs that the keys are cut into: enough that `units` x runs keep a device busy, none shorter than `shortest` keys.
[[nodiscard]] std::uint32_t splits_for(std::uint32_t busy, std::uint32_t units, std::uint32_t span,
                                       std::uint32_t shortest);

struct PartBuffers {  // of results in parts
  const gpu::Buffer *sums = nullptr, *stats = nullptr;
};
[[nodiscard]] Result<PartBuffers> part_buffers(GpuCall& call, std::uint64_t parts, std::uint32_t d, bool stats);
// The forward job's results out of their parts.
[[nodiscard]] Result<> combine(GpuCall& call, const Sizes& n, std::uint32_t splits, const PartBuffers& parts,
                               const GpuView& out, const GpuView& lse);

// What the forward job reads and writes: from queries, or those of one row from projections to heads.
struct RowHeads {
  const GpuView &q_norm, &k_norm;
  const GpuView* factors;
  const Turn& turn;
  float eps;
  bool own, value_norm;  // own: the row's key and value are projected too and go to k and v
};
struct Forward {
  const GpuView &from, &k, &v;
  Ranges ranges;
  const GpuView &out, &lse;
  const RowHeads* heads = nullptr;
};
// The job for one row (row.wgsl).
[[nodiscard]] bool has_row_kernel(const gpu::Capabilities& caps, const Sizes& n);
[[nodiscard]] Result<> record_row(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& row);
// Only the parts (combine.wgsl says what they are), where they are few; else `splits` is 0 and nothing is recorded.
struct RowParts {
  PartBuffers buffers;
  std::uint32_t splits = 0;
};
[[nodiscard]] Result<RowParts> record_row_parts(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& row);

// The job for many queries by matrix units (matrix.wgsl).
[[nodiscard]] bool has_matrix_kernel(const GpuCall& call, const Sizes& n, DType stored);
[[nodiscard]] Result<> record_matrix(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& forward);

}  // namespace rullama::attention_detail
