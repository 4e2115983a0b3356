#include "ops/rms_norm/rms_norm.h"

#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

// Both directions: they share shapes, the row loop and the kernel's reduction.
class RmsNorm final : public Op {
 public:
  RmsNorm(float eps, bool weighted, bool backward) : eps_(eps), weighted_(weighted), backward_(backward) {}

  std::string_view name() const override { return backward_ ? "rms_norm_backward" : "rms_norm"; }

  // inputs: x, [w], [dy]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32) return bad_argument(name(), "x", x, "F32");
    if (!(eps_ > 0)) return fail(cat(name(), ": eps is ", eps_, ", expected more than 0"));
    if (weighted_ && in[1] != TensorDesc{DType::F32, {x.shape.back()}})
      return bad_argument(name(), "w", in[1], cat("F32 [", x.shape.back(), "]"));
    if (backward_ && in.back() != x) return bad_argument(name(), "dy", in.back(), x.str());
    return std::vector{x};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &x = call.in[0], &dy = call.in.back(), &y = call.out[0];
    const std::size_t n = x.shape().back();
    const float* w = weighted_ ? call.in[1].f32().data() : nullptr;
    call.crew.run(x.shape().rows(), 1 + 16384 / (n + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; r++) {
        const auto xr = x.row(r), yr = y.row(r);
        double squares = 0, s = 0;
        for (std::size_t i = 0; i < n; i++) squares += static_cast<double>(xr[i]) * xr[i];
        const double root = std::sqrt(squares / static_cast<double>(n) + eps_);
        if (!backward_) {
          for (std::size_t i = 0; i < n; i++) yr[i] = static_cast<float>(xr[i] / root * (w ? w[i] : 1.0));
          continue;
        }
        const auto dr = dy.row(r);
        for (std::size_t i = 0; i < n; i++) s += static_cast<double>(dr[i]) * (w ? w[i] : 1.0) * xr[i];
        const double f = s / (static_cast<double>(n) * root * root * root);
        for (std::size_t i = 0; i < n; i++) yr[i] = static_cast<float>((w ? w[i] : 1.0) * dr[i] / root - xr[i] * f);
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView& x = call.in[0];
    const auto rows = static_cast<std::uint32_t>(x.shape().rows());
    const auto n = static_cast<std::uint32_t>(x.shape().back());
    if (rows == 0 || n == 0) return {};
    const struct {
      std::uint32_t rows, n;
      float eps;
      std::uint32_t pad = 0;
    } params{rows, n, eps_};
    // A CPU driver runs barriers slowly: one thread does a row there, a workgroup elsewhere.
    const bool by_thread = call.caps.is_cpu() || n <= 8;
    const std::uint32_t group = by_thread ? 1 : n <= 256 ? 64 : 256;
    const std::string key = cat(name(), weighted_ ? "_w" : "", "_", group);
    const auto source = [&] {
      return gpu::Wgsl("ops/rms_norm/rms_norm.wgsl")
          .constant("GROUP", group)
          .constant("WEIGHTED", weighted_)
          .constant("BACKWARD", backward_);
    };
    const GpuView& w = weighted_ ? call.in[1] : x;  // x stands in for an absent weight
    const GpuView& dy = call.in.back();
    return call.dispatch(key, source, {read(x), read(w), read(dy), write(call.out[0])}, params, gpu::Grid::wrap(rows));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    if (backward_) return Op::derivative(graph, in, {}, dout, {});
    std::vector<Var> din(in.size());
    din[0] = rms_norm_backward(in[0], weighted_ ? in[1] : Var{}, dout[0], eps_);
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = static_cast<double>(in[0].shape.elements()) * (backward_ ? 8 : 4);
    return cost;
  }

 private:
  float eps_;
  bool weighted_, backward_;
};

}  // namespace

Var rms_norm(Var x, Var w, float eps) {
  auto op = std::make_unique<RmsNorm>(eps, bool(w), false);
  if (!x) return {};
  return w ? x.graph()->add1(std::move(op), {x, w}) : x.graph()->add1(std::move(op), {x});
}

Var rms_norm_backward(Var x, Var w, Var dy, float eps) {
  auto op = std::make_unique<RmsNorm>(eps, bool(w), true);
  if (!x) return {};
  return w ? x.graph()->add1(std::move(op), {x, w, dy}) : x.graph()->add1(std::move(op), {x, dy});
}

}  // namespace rullama
