// Kernels for matrix units on a device that has none, so that their logic is tested without such a GPU.
#pragma once

#include <string>

#include "gpu/capabilities.h"

namespace rullama {

// As if the device were a GPU with matrix units of 16 x 16 x 16.
[[nodiscard]] gpu::Capabilities with_matrix_units(gpu::Capabilities caps);

// The text of a kernel with its matrices as arrays: 32 threads in a row are a subgroup, a factor is where it lies in
// workgroup memory and read when multiplied, and of 16 x 16 sums a thread has eight. Texts without matrices stay as
// they are. Kernels call their thread's index `thread`.
[[nodiscard]] std::string without_matrix_units(std::string wgsl);

}  // namespace rullama
