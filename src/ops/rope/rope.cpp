#include "ops/rope/rope.h"

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"
#include "ops/rope/turn.h"

namespace rullama {
namespace {

// Both forms: a head has one or two segments of `rotated` elements, each turned by positions of its own.
class Rope final : public Op {
 public:
  // inputs: x, positions of each segment, [factors]
  Rope(const RopeOptions& options, std::uint32_t segments, bool factors)
      : turn_(options), segments_(segments), factors_(factors) {}

  std::string_view name() const override { return segments_ == 2 ? "rope_2d" : "rope"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32 || x.shape.rank() != 3) return bad_argument(name(), "x", x, "F32 [rows, heads, width]");
    if (segments_ == 2 && x.shape[2] % 4)
      return fail(cat(name(), ": a head width of ", x.shape[2], ", expected a multiple of 4"));
    if (auto ok = check_turn(name(), turn_.options(), segments_, x.shape[2]); !ok) return failed(ok);
    const TensorDesc positions{DType::U32, {x.shape[0]}}, factors{DType::F32, {half()}};
    for (std::size_t s = 0; s < segments_; s++)
      if (in[1 + s] != positions) return bad_argument(name(), "positions", in[1 + s], positions.str());
    if (factors_ && in.back() != factors) return bad_argument(name(), "factors", in.back(), factors.str());
    return std::vector{x};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &x = call.in[0], &y = call.out[0];
    const std::size_t heads = x.shape()[1], d = x.shape()[2], h = half(), r = 2 * h;
    const float* factors = factors_ ? call.in.back().f32().data() : nullptr;
    call.crew.run(x.shape()[0], 1 + 8192 / (heads * d + 1), [&](std::size_t begin, std::size_t end) {
      std::vector<double> cosine(h), sine(h);
      for (std::size_t t = begin; t < end; t++) {
        const float* xt = x.f32().data() + t * heads * d;
        float* yt = y.f32().data() + t * heads * d;
        for (std::size_t s = 0; s < segments_; s++) {
          turn_.at(call.in[1 + s].u32()[t], factors, cosine, sine);
          for (std::size_t head = 0; head < heads; head++) {
            const float *a = xt + head * d + s * r, *b = a + h;
            float *ya = yt + head * d + s * r, *yb = ya + h;
            for (std::size_t i = 0; i < h; i++) {
              ya[i] = static_cast<float>(a[i] * cosine[i] - b[i] * sine[i]);
              yb[i] = static_cast<float>(a[i] * sine[i] + b[i] * cosine[i]);
            }
          }
        }
        for (std::size_t head = 0; head < heads; head++)
          for (std::size_t i = r * segments_; i < d; i++) yt[head * d + i] = xt[head * d + i];
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView& x = call.in[0];
    const std::uint64_t rows = x.shape()[0], heads = x.shape()[1], d = x.shape()[2];
    if (x.shape().elements() == 0) return {};
    const struct {
      std::uint32_t rows, heads, d;
      float position_scale, sign;
      std::uint32_t all_bits = 0xffffffff;
    } params{static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(heads), static_cast<std::uint32_t>(d),
             turn_.options().position_scale, turn_.options().inverse ? -1.0f : 1.0f};
    const std::string key = cat(name(), "_", turn_.key(), factors_ ? "_f" : "");
    const auto source = [&] {
      return gpu::Wgsl("ops/rope/rope.wgsl")
          .file("ops/rope/turn.wgsl")
          .file("ops/elementwise/functions.wgsl")
          .constant("HALF", half())
          .constant("SEGMENTS", segments_)
          .constant("FACTORS", factors_)
          .text(turn_.table());
    };
    const GpuView &positions = call.in[1], &other = call.in[segments_], &factors = factors_ ? call.in.back() : x;
    const std::uint64_t threads = rows * (d - std::uint64_t{half()} * segments_);
    return call.dispatch(key, source, {read(x), read(positions), read(other), read(factors), write(call.out[0])},
                         params, gpu::Grid::wrap((threads + 63) / 64));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    RopeOptions back = turn_.options();
    back.inverse = !back.inverse;
    std::vector<Var> args(in.begin(), in.end()), din(in.size());
    args[0] = dout[0];
    din[0] = graph.add(std::make_unique<Rope>(back, segments_, factors_), args)[0];
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = 3.0 * static_cast<double>(in[0].shape.elements());
    return cost;
  }

 private:
  std::uint32_t half() const { return turn_.half(); }

  Turn turn_;
  std::uint32_t segments_;
  bool factors_;
};

}  // namespace

Var rope(Var x, Var positions, Var factors, const RopeOptions& options) {
  if (!x) return {};
  auto op = std::make_unique<Rope>(options, 1, bool(factors));
  return factors ? x.graph()->add1(std::move(op), {x, positions, factors})
                 : x.graph()->add1(std::move(op), {x, positions});
}

Var rope_2d(Var x, Var pos_x, Var pos_y, float base, bool inverse) {
  if (!x) return {};
  const std::uint64_t d = x.shape().back();
  const auto half = static_cast<std::uint32_t>(d / 2);
  const RopeOptions options{
      .rotated = d % 4 == 0 ? half : 1, .base = base, .inverse = inverse};  // an odd width is refused
  return x.graph()->add1(std::make_unique<Rope>(options, 2, false), {x, pos_x, pos_y});
}

}  // namespace rullama
