// The forward job for many queries on a GPU with matrix units (matrix.wgsl).
#include <algorithm>
#include <optional>

#include "base/text.h"
#include "ops/attention/attention_gpu.h"
#include "ops/matrix_units.h"

namespace rullama::attention_detail {
namespace {

constexpr std::uint32_t kBusy = 128;  // workgroups that keep a GPU busy

struct MatrixShape {  // of a workgroup of matrix.wgsl
  std::uint32_t d, rows, cols = 64, subgroups = 8, v_keys;

  MatrixShape(std::uint32_t d_, std::uint32_t rows_) : d(d_), rows(rows_), v_keys(8192 / d) {}
  [[nodiscard]] std::uint32_t threads() const { return 32 * subgroups; }
  [[nodiscard]] std::uint32_t tile() const { return std::max((rows + cols) * (64 + 8), v_keys * (d + 8)); }  // halves
  [[nodiscard]] std::uint32_t memory() const {
    return 2 * tile() + 4 * rows * (cols + 4) + 2 * rows * (cols + 8) + 4 * rows + 16;
  }
};

// Tiles of 64 queries where there are enough of them and a processor takes more than one workgroup.
std::optional<MatrixShape> shape_for(const gpu::Capabilities& caps, const Sizes& n) {
  for (const std::uint32_t rows : {64, 32}) {
    const MatrixShape shape(n.d, rows);
    if (rows == 64 && (n.d > 256 || n.rows * n.heads < kBusy * rows)) continue;
    if (shape.threads() <= caps.max_invocations && has_matrix_units(caps, shape.memory())) return shape;
  }
  return {};
}

}  // namespace

bool has_matrix_kernel(const GpuCall& call, const Sizes& n, DType stored) {
  constexpr std::uint32_t few = 32;  // queries for which most of a tile would be for nothing
  // A GPU that has the units gave wrong results for widths of 64 and 128, for a reason that is not known.
  return call.precision == Precision::fast && stored == DType::F16 && n.rows * n.group >= few &&
         (n.d == 256 || n.d == 512) && shape_for(call.caps, n).has_value();
}

Result<> record_matrix(const Setup& setup, GpuCall& call, const Sizes& n, const Forward& forward) {
  const std::uint64_t queries = std::uint64_t{n.rows} * n.heads;
  auto halves = call.scratch(2, queries * n.d * 2);
  if (!halves) return failed(halves);
  auto scales = call.scratch(3, queries * 4);
  if (!scales) return failed(scales);
  if (auto ok = record_halves(call, forward.from, queries, **halves, **scales); !ok) return ok;

  const MatrixShape shape = *shape_for(call.caps, n);
  const std::uint32_t tiles = (n.rows * n.group + shape.rows - 1) / shape.rows;
  const std::uint32_t splits = std::min(splits_for(kBusy, n.kv_heads * tiles, span_of(setup, n), 2 * shape.cols),
                                        std::max(call.caps.max_workgroups / tiles, 1u));
  PartBuffers parts;
  if (splits > 1) {
    auto made = part_buffers(call, queries * splits, n.d, true);
    if (!made) return failed(made);
    parts = *made;
  }
  const auto source = [&] {
    const std::uint32_t grid_columns = shape.subgroups / 2;
    return with_matrices(gpu::Wgsl("ops/attention/matrix.wgsl"))
        .file("ops/attention/common.wgsl")
        .file("ops/attention/forward.wgsl")
        .constant("JOB", 0u)
        .constant("SPLIT", splits > 1)
        .constant("D", n.d)
        .constant("SUBGROUPS", shape.subgroups)
        .constant("ROWS", shape.rows)
        .constant("COLS", shape.cols)
        .constant("V_KEYS", shape.v_keys)
        .constant("TILE", shape.tile() / 4)
        .constant("SM", shape.rows / 32)
        .constant("SN", shape.cols / 16 / grid_columns)
        .constant("OM", shape.rows / 16)
        .constant("ON", n.d / 16 / shape.subgroups)
        .constant("Q_LOADS", shape.rows * 8 / shape.threads())
        .constant("K_LOADS", shape.cols * 8 / shape.threads())
        .constant("V_LOADS", shape.v_keys * n.d / 8 / shape.threads());
  };
  auto ok = call.dispatch(cat("attention_matrix_", n.d, "_", shape.rows, splits > 1 ? "_split" : ""), source,
                          {gpu::read(**halves), read(forward.k), gpu::read(**scales), read(forward.v),
                           parts.stats ? gpu::write(*parts.stats) : write(forward.lse), forward.ranges.positions,
                           forward.ranges.bounds, parts.sums ? gpu::write(*parts.sums) : write(forward.out)},
                          Params(setup, n, splits), {tiles * splits, n.kv_heads, 1});
  if (!ok || splits == 1) return ok;
  return combine(call, n, splits, parts, forward.out, forward.lse);
}

}  // namespace rullama::attention_detail
