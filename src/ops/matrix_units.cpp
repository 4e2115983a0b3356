#include "ops/matrix_units.h"

#include <algorithm>

#include "ops/reduce/row_plan.h"

namespace rullama {

bool has_matrix_units(const gpu::Capabilities& caps, std::uint32_t memory) {
  if (caps.workgroup_memory < memory || !caps.f16 || !caps.subgroups || caps.subgroup_min != 32 ||
      caps.subgroup_max != 32)
    return false;
  return std::ranges::any_of(caps.subgroup_matrices, [](const gpu::SubgroupMatrix& s) {
    return s.component == "f16" && s.result == "f32" && s.m == 16 && s.n == 16 && s.k == 16;
  });
}

gpu::Wgsl with_matrices(gpu::Wgsl kernel) {
  kernel.directive("diagnostic(off, chromium.subgroup_matrix_uniformity)")
      .enable("f16")
      .enable("subgroups")
      .enable("chromium_experimental_subgroup_matrix")
      .file("ops/matrix_units.wgsl");
  return kernel;
}

Result<> record_halves(GpuCall& call, const GpuView& x, std::uint64_t rows, const gpu::Buffer& halves,
                       const gpu::Buffer& scales) {
  const std::uint64_t columns = x.shape().elements() / std::max<std::uint64_t>(rows, 1);
  const RowPlan plan = plan_rows(call.caps, rows, columns);
  const struct {
    std::uint32_t rows, columns, blocks, pad = 0;
  } params{static_cast<std::uint32_t>(rows), plan.items(columns), static_cast<std::uint32_t>((columns + 31) / 32)};
  const auto source = [&] { return plan.source("ops/halves.wgsl"); };
  return call.dispatch(plan.key("halves"), source, {read(x), gpu::write(halves), gpu::write(scales)}, params,
                       plan.grid(rows));
}

}  // namespace rullama
