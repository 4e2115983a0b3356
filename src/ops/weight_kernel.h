// What all kernels that read weights share: the parameters of a weight's part and the files that decode its type.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpu/wgsl.h"
#include "ops/gpu_call.h"

namespace rullama {

// `Weight` of formats/dtype/weight.wgsl, the first member of such a kernel's parameters.
struct WeightParams {
  std::uint32_t planes[4];
  std::uint32_t row_words, columns, blocks, rows;
};
[[nodiscard]] WeightParams weight_params(const GpuView& w, const GpuPart& part);

// The kernel in `path` over w's type. It reads w through `decode4` and `decode32` (and `unpack32` of quantised types).
[[nodiscard]] gpu::Wgsl weight_kernel(std::string_view path, const TensorDesc& w);

// What w adds to the key of such a kernel.
[[nodiscard]] std::string weight_key(const TensorDesc& w);

}  // namespace rullama
