#include "ops/pool/pool.h"

#include <algorithm>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

// Both forms: with the channel first, channels and rows count as one dimension, which squares of an even height divide.
class AveragePool final : public Op {
 public:
  AveragePool(std::uint32_t k, bool channel_first) : k_(k), channel_first_(channel_first) {}
  std::string_view name() const override { return channel_first_ ? "average_pool_2x2" : "average_pool"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32 || x.shape.rank() != 3)
      return bad_argument(name(), "x", x, channel_first_ ? "F32 [C, H, W]" : "F32 [H, W, C]");
    if (k_ == 0) return fail(cat(name(), ": squares of 0, expected 1 or more"));
    if (!channel_first_) return std::vector{TensorDesc{DType::F32, {x.shape[0] / k_, x.shape[1] / k_, x.shape[2]}}};
    if (x.shape[1] % 2) return bad_argument(name(), "x", x, "an even height");
    return std::vector{TensorDesc{DType::F32, {x.shape[0], x.shape[1] / 2, (x.shape[2] + 1) / 2}}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const Sizes n = sizes(call.in[0].shape(), call.out[0].shape());
    call.crew.run(y.size(), 4096, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) {
        const std::size_t c = i % n.channels, column = i / n.channels % n.y_width, row = i / n.channels / n.y_width;
        double sum = 0;
        for (std::size_t dy = 0; dy < k_; dy++)
          for (std::size_t dx = 0; dx < k_; dx++)
            sum +=
                x[((row * k_ + dy) * n.width + std::min<std::size_t>(column * k_ + dx, n.width - 1)) * n.channels + c];
        y[i] = static_cast<float>(sum / (static_cast<double>(k_) * k_));
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t total = call.out[0].shape().elements();
    if (total == 0) return {};
    const Sizes n = sizes(call.in[0].shape(), call.out[0].shape());
    const struct {
      std::uint32_t total, width, y_width, channels, k;
      std::uint32_t pad[3] = {};
    } params{static_cast<std::uint32_t>(total), n.width, n.y_width, n.channels, k_};
    const auto source = [&] { return gpu::Wgsl("ops/pool/pool.wgsl"); };
    return call.dispatch("average_pool", source, {read(call.in[0]), write(call.out[0])}, params,
                         gpu::Grid::wrap((total + 63) / 64));
  }

 private:
  struct Sizes {
    std::uint32_t width, y_width, channels;
  };
  Sizes sizes(const Shape& x, const Shape& y) const {
    const auto u = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
    return channel_first_ ? Sizes{u(x[2]), u(y[2]), 1} : Sizes{u(x[1]), u(y[1]), u(x[2])};
  }

  std::uint32_t k_;
  bool channel_first_;
};

Var pool(Var x, std::uint32_t k, bool channel_first) {
  return x ? x.graph()->add1(std::make_unique<AveragePool>(k, channel_first), {x}) : Var{};
}

}  // namespace

Var average_pool(Var x, std::uint32_t k) { return pool(x, k, false); }
Var average_pool_2x2(Var x) { return pool(x, 2, true); }

}  // namespace rullama
