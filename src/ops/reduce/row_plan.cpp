#include "ops/reduce/row_plan.h"

#include <array>

namespace rullama {

gpu::Grid RowPlan::grid(std::uint64_t rows) const {
  return gpu::Grid::wrap(way == Way::thread ? (rows + group - 1) / group : rows);
}

std::string RowPlan::key(std::string_view kernel) const {
  static constexpr std::array<std::string_view, 4> ways = {"thread", "subgroup", "workgroup", "workgroup_subgroups"};
  return cat(kernel, "/", ways[static_cast<std::size_t>(way)], group, four ? "x4" : "");
}

gpu::Wgsl RowPlan::source(std::string_view path) const {
  static constexpr std::array<std::string_view, 4> files = {
      "ops/reduce/row_thread.wgsl", "ops/reduce/row_subgroup.wgsl", "ops/reduce/row_workgroup.wgsl",
      "ops/reduce/row_workgroup_subgroups.wgsl"};
  gpu::Wgsl wgsl(path);
  if (way == Way::subgroup || way == Way::workgroup_subgroups) wgsl.enable("subgroups");
  return wgsl.file(files[static_cast<std::size_t>(way)])
      .file(four ? "ops/reduce/item_four.wgsl" : "ops/reduce/item_one.wgsl")
      .constant("GROUP", group)
      .constant("LANES", way == Way::thread ? 1u : group);
}

RowPlan plan_rows(const gpu::Capabilities& caps, std::uint64_t rows, std::uint64_t n) {
  using enum RowPlan::Way;
  RowPlan plan;
  plan.four = n % 4 == 0;
  if (caps.is_cpu()) {
    const bool known_size = caps.subgroups && caps.subgroup_min == caps.subgroup_max && caps.subgroup_max >= 4;
    plan.way = known_size && n > 8 ? subgroup : thread;
    plan.group = plan.way == subgroup ? caps.subgroup_max : rows >= 256 ? 64 : 1;
  } else if (n <= 16) {
    plan.way = thread;
  } else {
    plan.way = caps.subgroups ? workgroup_subgroups : workgroup;
    plan.group = n <= 256 ? 64 : 256;
  }
  return plan;
}

}  // namespace rullama
