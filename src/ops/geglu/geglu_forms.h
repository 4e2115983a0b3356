// The forms of geglu for ops that end with it.
#pragma once

#include "ops/gpu_call.h"

namespace rullama {

// y[i] = gelu(gate[i]) * up[i]; y may be one of them.
void geglu_row(const float* gate, const float* up, std::size_t n, float* y, Precision precision);
// y = gelu(u[:, :f]) * u[:, f:]. u: [m, 2f]; y: [m, f].
[[nodiscard]] Result<> record_geglu_halves(GpuCall& call, const GpuView& u, const GpuView& y);

// y = gelu(gate) * up[:, column : column + n]. gate, y: [m, n].
[[nodiscard]] Result<> record_geglu(GpuCall& call, const GpuView& gate, const GpuView& up, std::uint32_t column,
                                    const GpuView& y);

}  // namespace rullama
