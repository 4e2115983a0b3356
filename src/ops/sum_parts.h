// Sums that were computed in parts because one workgroup for each result would leave a GPU idle.
#pragma once

#include <cstdint>

#include "ops/gpu_call.h"

namespace rullama {

// `Params` of sum_parts.wgsl but for `threads`.
struct PartSums {
  std::uint32_t columns = 0, splits = 1, y_columns = 0, first = 0, plus = 0;
  float scale = 1;
};

// y[r, first + c] = scale * sum_s parts[r, s, c] + plus, for `rows` rows; always in the same order.
[[nodiscard]] Result<> record_part_sums(GpuCall& call, const gpu::Buffer& parts, std::uint64_t rows,
                                        const PartSums& sums, const GpuView& plus, const GpuView& y);

}  // namespace rullama
