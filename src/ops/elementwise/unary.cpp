#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "ops/adamw/adamw.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

constexpr double kRoot2OverPi = 0.7978845608028654, kCubic = 0.044715;

// A function of x with two parameters a and b, and its derivative, each as C++ and as WGSL.
struct Unary {
  std::string_view name;
  double (*value)(double x, double a, double b);
  double (*slope)(double x, double a, double b);
  std::string_view wgsl, wgsl_slope;
};

double gelu_tanh(double x) { return std::tanh(kRoot2OverPi * (x + kCubic * x * x * x)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

constexpr Unary kScale{"scale", [](double x, double a, double) { return a * x; },
                       [](double, double a, double) { return a; }, "a * x", "a"};
constexpr Unary kSoftcap{"softcap", [](double x, double a, double) { return a > 0 ? a * std::tanh(x / a) : x; },
                         [](double x, double a, double) {
                           const double t = a > 0 ? std::tanh(x / a) : 0;
                           return 1 - t * t;
                         },
                         "select(x, a * safe_tanh(x / a), a > 0.0)",
                         "1.0 - select(0.0, squared(safe_tanh(x / a)), a > 0.0)"};
constexpr Unary kClamp{"clamp", [](double x, double a, double b) { return std::min(std::max(x, a), b); },
                       [](double x, double a, double b) { return x >= a && x <= b ? 1.0 : 0.0; }, "min(max(x, a), b)",
                       "select(0.0, 1.0, x >= a && x <= b)"};
constexpr Unary kGelu{
    "gelu", [](double x, double, double) { return 0.5 * x * (1 + gelu_tanh(x)); },
    [](double x, double, double) {
      const double t = gelu_tanh(x);
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot2OverPi * (1 + 3 * kCubic * x * x);
    },
    "0.5 * x * (1.0 + gelu_tanh(x))",
    "0.5 * (1.0 + gelu_tanh(x)) + 0.5 * x * (1.0 - squared(gelu_tanh(x))) * 0.7978845608 * (1.0 + 0.134145 * x * x)"};
constexpr Unary kGeluExact{
    "gelu_exact", [](double x, double, double) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); },
    [](double x, double, double) {
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(6.283185307179586);
    },
    "0.5 * x * (1.0 + erf(x * 0.7071067812))",
    "0.5 * (1.0 + erf(x * 0.7071067812)) + x * exp(-0.5 * x * x) * 0.3989422804"};
constexpr Unary kSilu{"silu", [](double x, double, double) { return x * sigmoid(x); },
                      [](double x, double, double) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); },
                      "x * sigmoid(x)", "sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)))"};
constexpr Unary kLeakyRelu{"leaky_relu", [](double x, double a, double) { return x < 0 ? a * x : x; },
                           [](double x, double a, double) { return x < 0 ? a : 1.0; }, "select(x, a * x, x < 0.0)",
                           "select(1.0, a, x < 0.0)"};

constexpr Unary kClipFactor{
    "clip_factor", [](double x, double a, double) { return a > 0 && x > a * a ? a / std::sqrt(x) : 1.0; },
    [](double x, double a, double) { return a > 0 && x > a * a ? -0.5 * a / (x * std::sqrt(x)) : 0.0; },
    "select(1.0, a / sqrt(max(x, 1e-30)), a > 0.0 && x > a * a)",
    "select(0.0, -0.5 * a / (x * sqrt(max(x, 1e-30))), a > 0.0 && x > a * a)"};

// Forward: inputs x. Backward: inputs x, dy; y = dy * slope(x).
class UnaryOp final : public Op {
 public:
  UnaryOp(const Unary& f, float a, float b, bool backward) : f_(f), a_(a), b_(b), backward_(backward) {}
  std::string_view name() const override { return f_.name; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in[0].dtype != DType::F32) return bad_argument(name(), "x", in[0], "F32");
    if (backward_ && in[1] != in[0]) return bad_argument(name(), "dy", in[1], in[0].str());
    return std::vector{in[0]};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const double a = a_, b = b_;
    call.crew.run(x.size(), 4096, [&](std::size_t begin, std::size_t end) {
      if (backward_) {
        const auto dy = call.in[1].f32();
        for (std::size_t i = begin; i < end; i++) y[i] = static_cast<float>(dy[i] * f_.slope(x[i], a, b));
      } else if (&f_ == &kScale) {
        for (std::size_t i = begin; i < end; i++) y[i] = a_ * x[i];
      } else {
        for (std::size_t i = begin; i < end; i++) y[i] = static_cast<float>(f_.value(x[i], a, b));
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t n = call.in[0].shape().elements();
    if (n == 0) return {};
    const struct {
      std::uint32_t n;
      float a, b;
      std::uint32_t pad = 0;
    } params{static_cast<std::uint32_t>(n), finite(a_), finite(b_)};
    const std::string key = cat(name(), backward_ ? "_backward" : "");
    const auto source = [&] {
      const std::string body = cat("fn function_of(x: f32, a: f32, b: f32) -> f32 { return ",
                                   backward_ ? f_.wgsl_slope : f_.wgsl, " + 0.0 * b; }");
      return gpu::Wgsl("ops/elementwise/unary.wgsl")
          .file("ops/elementwise/functions.wgsl")
          .constant("BACKWARD", backward_)
          .text(body);
    };
    return call.dispatch(key, source, {read(call.in[0]), read(call.in.back()), write(call.out[0])}, params,
                         gpu::Grid::wrap((n + 255) / 256));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    if (backward_) return Op::derivative(graph, in, {}, dout, {});
    return std::vector{graph.add1(std::make_unique<UnaryOp>(f_, a_, b_, true), {in[0], dout[0]})};
  }

 private:
  // WGSL has no infinities: a bound that is none becomes the largest number.
  static float finite(float v) {
    return std::clamp(v, std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max());
  }

  const Unary& f_;
  float a_, b_;
  bool backward_;
};

Var unary(const Unary& f, Var x, float a = 0, float b = 0) {
  return x ? x.graph()->add1(std::make_unique<UnaryOp>(f, a, b, false), {x}) : Var{};
}

}  // namespace

Var scale(Var x, float s) { return unary(kScale, x, s); }
Var softcap(Var x, float cap) { return unary(kSoftcap, x, cap); }
Var softcap_backward(Var x, float cap, Var dy) {
  return x ? x.graph()->add1(std::make_unique<UnaryOp>(kSoftcap, cap, 0.0f, true), {x, dy}) : Var{};
}
Var clamp(Var x, float lo, float hi) { return unary(kClamp, x, lo, hi); }
Var gelu(Var x) { return unary(kGelu, x); }
Var gelu_exact(Var x) { return unary(kGeluExact, x); }
Var silu(Var x) { return unary(kSilu, x); }
Var leaky_relu(Var x, float slope) { return unary(kLeakyRelu, x, slope); }

Var clip_factor(Var squares, float max_norm) { return unary(kClipFactor, squares, max_norm); }

}  // namespace rullama
