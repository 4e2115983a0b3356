// What the parts of this folder share: a convolution as index arithmetic, which all layouts and kinds come down to.
#pragma once

#include <cstdint>

#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {

struct ConvPlane {
  std::uint32_t height = 1, width = 0;
  std::uint32_t channel_step = 0, row_step = 0, column_step = 1;  // elements from one to the next
};

struct ConvGeometry {
  ConvPlane x, y;
  std::uint32_t kernel_height = 1, kernel_width = 0;
  std::uint32_t groups = 1, in = 0, out = 0;  // channels of a group
  std::uint32_t stride = 1, dilation = 1, padding_top = 0, padding_left = 0;
  bool transposed = false;  // of one row: y takes from x where x would take from y

  // Which row of w has the taps of output channel o, its group's input channel i and kernel row k.
  [[nodiscard]] std::uint64_t weight_row(std::uint64_t o, std::uint64_t i, std::uint64_t k) const {
    if (transposed) return (o / out * in + i) * out + o % out;
    return (o * in + i) * kernel_height + k;
  }
};

// Inputs x, w and, if `biased`, the bias.
void conv_cpu(const ConvGeometry& geometry, bool biased, const CpuCall& call);
[[nodiscard]] Result<> conv_gpu(const ConvGeometry& geometry, bool biased, GpuCall& call);

}  // namespace rullama
