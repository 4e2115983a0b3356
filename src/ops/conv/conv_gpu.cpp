#include <algorithm>

#include "base/text.h"
#include "ops/conv/conv_op.h"
#include "ops/weight_kernel.h"

namespace rullama {
namespace {

struct Params {  // of conv.wgsl
  WeightParams w;
  ConvPlane x, y;
  std::uint32_t kernel_height, kernel_width, groups, in, out, stride, dilation, padding_top, padding_left;
  std::uint32_t columns, blocks, biased;
  std::uint32_t pad[2] = {};
};

}  // namespace

Result<> conv_gpu(const ConvGeometry& g, bool biased, GpuCall& call) {
  const GpuView &x = call.in[0], &w = call.in[1], &y = call.out[0];
  if (y.shape().elements() == 0) return {};
  if (w.parts.size() != 1)
    return fail(cat("a convolution with weights of ", w.desc.str(), ": this device binds at most ",
                    bytes_text(static_cast<double>(call.caps.max_binding_bytes)), " at once"));
  // A thread does `places` columns of a row for `outs` channels. Columns of a thread lie `columns` apart, so that
  // neighbours read and write neighbours; in a transposed convolution all of them meet the same taps.
  const std::uint32_t outs = g.out >= 4 ? 4 : 1, places = 4;
  std::uint32_t columns = (g.y.width + places - 1) / places;
  if (g.transposed) columns = (columns + g.stride - 1) / g.stride * g.stride;
  const bool by_channel = g.y.channel_step == 1 && g.y.column_step > 1;
  const Params params{weight_params(w, w.parts[0]),
                      g.x,
                      g.y,
                      g.kernel_height,
                      g.kernel_width,
                      g.groups,
                      g.in,
                      g.out,
                      g.stride,
                      g.dilation,
                      g.padding_top,
                      g.padding_left,
                      columns,
                      g.groups * ((g.out + outs - 1) / outs),
                      biased};
  const std::uint64_t threads = std::uint64_t{columns} * g.y.height * params.blocks;
  const auto source = [&] {
    return weight_kernel("ops/conv/conv.wgsl", w.desc)
        .constant("PLACES", places)
        .constant("OUTS", outs)
        .constant("TRANSPOSED", g.transposed)
        .constant("BY_CHANNEL", by_channel)
        .alias("Outs", outs == 4 ? "vec4f" : "f32")
        .text(outs == 4 ? "fn taps(row: u32, step: u32, k: u32) -> Outs { return vec4f(dense1(row, k), "
                          "dense1(row + step, k), dense1(row + 2u * step, k), dense1(row + 3u * step, k)); }\n"
                          "fn part(v: Outs, i: u32) -> f32 { return v[i]; }"
                        : "fn taps(row: u32, step: u32, k: u32) -> Outs { return dense1(row, k); }\n"
                          "fn part(v: Outs, i: u32) -> f32 { return v; }");
  };
  const std::string key =
      cat("conv_", weight_key(w.desc), "_", outs, g.transposed ? "_transposed" : "", by_channel ? "_by_channel" : "");
  return call.dispatch(
      key, source,
      {gpu::read(*w.parts[0].buffer), gpu::read(*w.parts[0].buffer), read(x), read(biased ? call.in[2] : x), write(y)},
      params, gpu::Grid::wrap((threads + 63) / 64));
}

}  // namespace rullama
