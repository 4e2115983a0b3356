// Kernels that reduce rows: how the rows are shared out over lanes, and the WGSL that sums over the lanes of a row.
//
// A kernel's text calls row_of(workgroup, index), lane_of(index), row_sum(vec2f, lane) and row_max(f32, lane), walks
// its row with `for (var i = lane; i < p.n; i += LANES)`, and has workgroups of GROUP. Every lane of a row gets the
// results. With items, arrays hold `Item`s, four numbers or one; total(item) adds them up and largest(item) picks the
// largest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/capabilities.h"
#include "gpu/command_list.h"
#include "gpu/wgsl.h"

namespace rullama {

struct RowPlan {
  enum class Way : std::uint8_t {
    thread,               // a lane does a row alone: short rows, and CPU drivers, which are slow at barriers
    subgroup,             // a workgroup is one subgroup: CPU drivers
    workgroup,            // through workgroup memory
    workgroup_subgroups,  // subgroups first, then workgroup memory
  };
  Way way = Way::workgroup;
  std::uint32_t group = 64;  // threads of a workgroup
  bool four = false;         // items of four numbers

  [[nodiscard]] std::uint32_t items(std::uint64_t n) const { return static_cast<std::uint32_t>(four ? n / 4 : n); }
  [[nodiscard]] gpu::Grid grid(std::uint64_t rows) const;
  [[nodiscard]] std::string key(std::string_view kernel) const;
  [[nodiscard]] gpu::Wgsl source(std::string_view path) const;
};

[[nodiscard]] RowPlan plan_rows(const gpu::Capabilities& caps, std::uint64_t rows, std::uint64_t n);

}  // namespace rullama
