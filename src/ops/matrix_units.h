// What kernels for a GPU's matrix units share.
#pragma once

#include <cstdint>

#include "ops/gpu_call.h"

namespace rullama {

// Whether subgroups of 32 lanes multiply 16 x 16 x 16 matrices of 16-bit floats into sums of 32 bits, with `memory`
// bytes for a workgroup.
[[nodiscard]] bool has_matrix_units(const gpu::Capabilities& caps, std::uint32_t memory);

// The kernel with what the units need: Left, Right and Sums of matrix_units.wgsl.
[[nodiscard]] gpu::Wgsl with_matrices(gpu::Wgsl kernel);

// `rows` rows of x in 16 bits, [rows][blocks of 32], and the power of two that each was divided by (halves.wgsl).
[[nodiscard]] Result<> record_halves(GpuCall& call, const GpuView& x, std::uint64_t rows, const gpu::Buffer& halves,
                                     const gpu::Buffer& scales);

}  // namespace rullama
