#include "ops/sum_parts.h"

namespace rullama {

Result<> record_part_sums(GpuCall& call, const gpu::Buffer& parts, std::uint64_t rows, const PartSums& sums,
                          const GpuView& plus, const GpuView& y) {
  const std::uint64_t threads = rows * sums.columns;
  const struct {
    std::uint32_t threads;
    std::uint32_t columns, splits, y_columns, first, plus;
    float scale;
    std::uint32_t pad;
  } params{static_cast<std::uint32_t>(threads),
           sums.columns,
           sums.splits,
           sums.y_columns,
           sums.first,
           sums.plus,
           sums.scale,
           0};
  const auto source = [] { return gpu::Wgsl("ops/sum_parts.wgsl"); };
  return call.dispatch("sum_parts", source, {gpu::read(parts), read(plus), write(y)}, params,
                       gpu::Grid::wrap((threads + 63) / 64));
}

}  // namespace rullama
