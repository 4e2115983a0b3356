// The CPU form: each row of the result is a sum of shifted rows of x, one for each tap.
#include <algorithm>
#include <vector>

#include "ops/conv/conv_op.h"

namespace rullama {
namespace {

// sums[from_y + step_y j] += tap * line[from_x + step_x j] for j < count
template <class Sum>
void add_line(Sum* sums, std::size_t step_y, const float* line, std::size_t step_x, std::size_t count, float tap) {
  if (step_x == 1 && step_y == 1) {  // the compiler makes vector code of it
    for (std::size_t j = 0; j < count; j++) sums[j] += static_cast<Sum>(tap) * line[j];
  } else {
    for (std::size_t j = 0; j < count; j++) sums[j * step_y] += static_cast<Sum>(tap) * line[j * step_x];
  }
}

// Adds one tap at kernel column k. `longer` is the side that moves by `stride` for each element of `shorter`:
// position of longer = stride * position of shorter + offset.
template <class Sum>
void add_tap(const ConvGeometry& g, Sum* sums, const float* line, std::int64_t k, float tap) {
  const std::int64_t offset = k * g.dilation - g.padding_left, stride = g.stride;
  const std::int64_t longer = g.transposed ? g.y.width : g.x.width, shorter = g.transposed ? g.x.width : g.y.width;
  const std::int64_t first = offset < 0 ? (-offset + stride - 1) / stride : 0;
  const std::int64_t end = offset < longer ? std::min(shorter, (longer - offset + stride - 1) / stride) : 0;
  if (first >= end) return;
  const auto count = static_cast<std::size_t>(end - first);
  const std::int64_t at = first * stride + offset;
  if (g.transposed) {
    add_line(sums + at, g.stride, line + first * g.x.column_step, g.x.column_step, count, tap);
  } else {
    add_line(sums + first, 1, line + at * g.x.column_step, std::size_t{g.stride} * g.x.column_step, count, tap);
  }
}

template <class Sum>
void convolve(const ConvGeometry& g, bool biased, const CpuCall& call) {
  const float* x = call.in[0].f32().data();
  const CpuView& w = call.in[1];
  float* y = call.out[0].f32().data();
  const std::size_t work = std::size_t{g.y.width} * g.in * g.kernel_height * g.kernel_width;
  call.crew.run(std::size_t{g.groups} * g.out * g.y.height, 1 + 16384 / (work + 1), [&](auto begin, auto end) {
    std::vector<Sum> sums(g.y.width);
    std::vector<float> taps(g.kernel_width);
    for (std::size_t row = begin; row < end; row++) {
      const std::size_t o = row / g.y.height, oy = row % g.y.height;
      std::fill(sums.begin(), sums.end(), biased ? static_cast<Sum>(call.in[2].f32()[o]) : Sum{0});
      for (std::uint32_t i = 0; i < g.in; i++) {
        const float* channel = x + (o / g.out * g.in + i) * g.x.channel_step;
        for (std::uint32_t ky = 0; ky < g.kernel_height; ky++) {
          const std::uint64_t iy = oy * g.stride + std::uint64_t{ky} * g.dilation - g.padding_top;  // wraps above
          if (iy >= g.x.height) continue;
          w.decode_row(g.weight_row(o, i, ky), taps);
          for (std::uint32_t kx = 0; kx < g.kernel_width; kx++)
            add_tap(g, sums.data(), channel + iy * g.x.row_step, kx, taps[kx]);
        }
      }
      float* out = y + o * g.y.channel_step + oy * g.y.row_step;
      for (std::size_t ox = 0; ox < sums.size(); ox++) out[ox * g.y.column_step] = static_cast<float>(sums[ox]);
    }
  });
}

}  // namespace

void conv_cpu(const ConvGeometry& geometry, bool biased, const CpuCall& call) {
  if (call.out[0].shape().elements() == 0) return;
  call.precision == Precision::reference ? convolve<double>(geometry, biased, call)
                                         : convolve<float>(geometry, biased, call);
}

}  // namespace rullama
