#include "ops/adamw/adamw.h"

#include <cmath>
#include <cstring>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

class AdamW final : public Op {
 public:
  explicit AdamW(bool clipped) : clipped_(clipped) {}
  std::string_view name() const override { return "adamw"; }
  std::uint32_t writes() const override { return 0b111; }

  // inputs: p, m, v, g, hyper, [clip]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    static constexpr std::string_view names[] = {"p", "m", "v", "g"};
    const std::uint64_t n = in[0].shape.elements();
    for (std::size_t i = 0; i < 4; i++)
      if (in[i].dtype != DType::F32 || in[i].shape.elements() != n)
        return bad_argument(name(), names[i], in[i], cat("F32 with ", n, " elements"));
    const TensorDesc hyper{DType::F32, {sizeof(AdamHyper) / sizeof(float)}}, one{DType::F32, {1}};
    if (in[4] != hyper) return bad_argument(name(), "hyper", in[4], hyper.str());
    if (clipped_ && in[5] != one) return bad_argument(name(), "clip", in[5], one.str());
    return std::vector<TensorDesc>{};
  }

  void eval(const CpuCall& call) const override {
    AdamHyper h;
    std::memcpy(&h, call.in[4].data, sizeof h);
    const double factor = static_cast<double>(h.gradient_scale) * (clipped_ ? call.in[5].f32()[0] : 1.0f);
    const auto p = call.in[0].f32(), m = call.in[1].f32(), v = call.in[2].f32(), g = call.in[3].f32();
    const double b1 = h.beta1, b2 = h.beta2;
    call.crew.run(p.size(), 4096, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) {
        const double d = factor * g[i], mean = b1 * m[i] + (1 - b1) * d, square = b2 * v[i] + (1 - b2) * d * d;
        m[i] = static_cast<float>(mean);
        v[i] = static_cast<float>(square);
        const double step = mean / h.correction1 / (std::sqrt(square / h.correction2) + h.eps);
        p[i] = static_cast<float>(p[i] - h.lr * (step + static_cast<double>(h.weight_decay) * p[i]));
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t n = call.in[0].shape().elements();
    if (n == 0) return {};
    const struct {
      std::uint32_t n, pad[3] = {};
    } params{static_cast<std::uint32_t>(n)};
    const auto source = [&] { return gpu::Wgsl("ops/adamw/adamw.wgsl").constant("CLIPPED", clipped_); };
    const GpuView& clip = call.in[clipped_ ? 5 : 4];  // the hyperparameters stand in for an absent factor
    return call.dispatch(
        clipped_ ? "adamw_clipped" : "adamw", source,
        {write(call.in[0]), write(call.in[1]), write(call.in[2]), read(call.in[3]), read(call.in[4]), read(clip)},
        params, gpu::Grid::wrap((n + 255) / 256));
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc>) const override {
    const auto n = static_cast<double>(in[0].shape.elements());
    return {7 * 4 * n, 16 * n};
  }

 private:
  bool clipped_;
};

}  // namespace

AdamHyper adam_hyper(double lr, std::uint64_t step, double beta1, double beta2, double eps, double weight_decay,
                     double gradient_scale) {
  const auto t = static_cast<double>(step);
  const auto f = [](double v) { return static_cast<float>(v); };
  return {f(lr),
          f(beta1),
          f(beta2),
          f(eps),
          f(weight_decay),
          f(-std::expm1(t * std::log(beta1))),
          f(-std::expm1(t * std::log(beta2))),
          f(gradient_scale)};
}

void adamw(Var p, Var m, Var v, Var g, Var hyper, Var clip) {
  if (!p) return;
  std::vector<Var> in{p, m, v, g, hyper};
  if (clip) in.push_back(clip);
  (void)p.graph()->add(std::make_unique<AdamW>(bool(clip)), in);
}

}  // namespace rullama
