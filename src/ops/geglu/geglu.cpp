#include "ops/geglu/geglu.h"

#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/geglu/geglu_forms.h"
#include "ops/gpu_call.h"
#include "ops/matmul/product_loops.h"
#include "ops/slice/slice.h"

namespace rullama {
namespace {

constexpr double kRoot2OverPi = 0.7978845608028654, kCubic = 0.044715;

double gelu_tanh(double x) { return std::tanh(kRoot2OverPi * x * (1 + kCubic * x * x)); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Gate {
  std::string_view name;
  double (*value)(double);
  double (*slope)(double);
  std::string_view wgsl, wgsl_slope;
};
constexpr Gate kGelu{"geglu", [](double x) { return 0.5 * x * (1 + gelu_tanh(x)); },
                     [](double x) {
                       const double t = gelu_tanh(x);
                       return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kRoot2OverPi * (1 + 3 * kCubic * x * x);
                     },
                     "gelu(x)", "gelu_slope(x)"};
constexpr Gate kQuick{"quick_geglu", [](double x) { return x * sigmoid(1.702 * x); },
                      [](double x) {
                        const double s = sigmoid(1.702 * x);
                        return s + 1.702 * x * s * (1 - s);
                      },
                      "x * sigmoid(1.702 * x)", "sigmoid(1.702 * x) * (1.0 + 1.702 * x * (1.0 - sigmoid(1.702 * x)))"};
constexpr Gate kSigmoid{"glu", [](double x) { return sigmoid(x); },
                        [](double x) { return sigmoid(x) * (1 - sigmoid(x)); }, "sigmoid(x)",
                        "sigmoid(x) * (1.0 - sigmoid(x))"};

// A block of columns of a matrix.
struct Columns {
  const GpuView& matrix;
  std::uint32_t first;
};

std::string functions(const Gate& f) {
  return cat("fn gate_of(x: f32) -> f32 { return ", f.wgsl, "; }\nfn gate_slope(x: f32) -> f32 { return ", f.wgsl_slope,
             "; }");
}

Result<> dispatch(GpuCall& call, std::string_view key, const Gate& f, std::uint32_t result, Columns gate, Columns up,
                  const GpuView& dy, const GpuView& y) {
  const std::uint64_t total = y.shape().elements();
  if (total == 0) return {};
  const auto u = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const struct {
    std::uint32_t total, n, gate_stride, gate_column, up_stride, up_column;
  } params{u(total),   u(y.shape().back()),         u(gate.matrix.shape().back()),
           gate.first, u(up.matrix.shape().back()), up.first};
  const auto source = [&] {
    return gpu::Wgsl("ops/geglu/geglu.wgsl")
        .file("ops/elementwise/functions.wgsl")
        .constant("RESULT", result)
        .text(functions(f));
  };
  return call.dispatch(key, source, {read(gate.matrix), read(up.matrix), read(dy), write(y)}, params,
                       gpu::Grid::wrap((total + 255) / 256));
}

// gate and up are column blocks of (one or two) matrices. Forward: y = f(gate) up. Backward, from dy: what the gate and
// what the factor receive.
class GatedOp final : public Op {
 public:
  enum class Part : std::uint8_t { value, d_gate, d_up };
  GatedOp(const Gate& f, std::uint64_t n, std::uint32_t gate_column, std::uint32_t up_column, Part result)
      : f_(f), n_(n), gate_column_(gate_column), up_column_(up_column), result_(result) {}
  std::string_view name() const override { return f_.name; }

  // inputs: gate, up, [dy]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const auto columns = [&](const TensorDesc& d, std::uint64_t first) {
      return d.dtype == DType::F32 && d.shape.back() >= first + n_;
    };
    if (!columns(in[0], gate_column_))
      return bad_argument(name(), "gate", in[0], cat("F32 rows of at least ", gate_column_ + n_));
    if (!columns(in[1], up_column_) || in[1].shape.rows() != in[0].shape.rows())
      return bad_argument(name(), "up", in[1], cat("F32, ", in[0].shape.rows(), " rows of at least ", up_column_ + n_));
    Shape out = in[0].shape;
    out[out.rank() - 1] = n_;
    if (in.size() == 3 && in[2] != TensorDesc{DType::F32, out})
      return bad_argument(name(), "dy", in[2], cat("F32 ", out.str()));
    return std::vector{TensorDesc{DType::F32, out}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &gate = call.in[0], &up = call.in[1], &y = call.out[0];
    const bool fast = call.precision != Precision::reference && &f_ == &kGelu && result_ == Part::value;
    call.crew.run(y.shape().rows(), 1 + 4096 / (n_ + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; r++) {
        const float *g = gate.row(r).data() + gate_column_, *u = up.row(r).data() + up_column_;
        const float* dy = call.in.size() == 3 ? call.in[2].row(r).data() : nullptr;
        float* out = y.row(r).data();
        if (fast) {
          product_loops::gelu_product(g, u, n_, out);
        } else {
          for (std::size_t i = 0; i < n_; i++) out[i] = static_cast<float>(one(g[i], u[i], dy ? dy[i] : 1));
        }
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    static constexpr std::string_view results[] = {"", "_d_gate", "_d_up"};
    const auto result = static_cast<std::uint32_t>(result_);
    return dispatch(call, cat(name(), results[result]), f_, result, {call.in[0], gate_column_},
                    {call.in[1], up_column_}, call.in.back(), call.out[0]);
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var> out,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    if (result_ != Part::value) return Op::derivative(graph, in, out, dout, wanted);
    const auto part = [&](Part result, Var whole, std::uint32_t column) {
      Var d = graph.add1(std::make_unique<GatedOp>(f_, n_, gate_column_, up_column_, result), {in[0], in[1], dout[0]});
      return whole.shape().back() == n_ ? d : spread_columns(d, whole.shape(), column);
    };
    std::vector<Var> din(2);
    if (wanted[0]) din[0] = part(Part::d_gate, in[0], gate_column_);
    if (wanted[1]) din[1] = part(Part::d_up, in[1], up_column_);
    return din;
  }

 private:
  double one(double g, double u, double dy) const {
    switch (result_) {
      case Part::value: return f_.value(g) * u;
      case Part::d_gate: return dy * f_.slope(g) * u;
      case Part::d_up: return dy * f_.value(g);
    }
    return 0;
  }

  const Gate& f_;
  std::uint64_t n_;
  std::uint32_t gate_column_, up_column_;
  Part result_;
};

Var gated(const Gate& f, Var gate, Var up, std::uint64_t n, std::uint32_t gate_column, std::uint32_t up_column) {
  if (!gate) return {};
  return gate.graph()->add1(std::make_unique<GatedOp>(f, n, gate_column, up_column, GatedOp::Part::value), {gate, up});
}

// Both from one matrix: its first half of columns is the gate, or its second.
Var halves(const Gate& f, Var x, bool second_is_gate) {
  if (!x) return {};
  const std::uint64_t n = x.shape().back() / 2;
  if (x.shape().back() % 2) {
    x.graph()->set_error(bad_argument(f.name, "x", x.desc(), "rows of an even number of elements").error());
    return {};
  }
  const auto second = static_cast<std::uint32_t>(n);
  return gated(f, x, x, n, second_is_gate ? second : 0, second_is_gate ? 0 : second);
}

}  // namespace

Var geglu(Var gate, Var up, std::uint32_t up_column) {
  return gated(kGelu, gate, up, gate.shape().back(), 0, up_column);
}
GegluGradient geglu_backward(Var gate, Var up, Var dy) {
  if (!gate) return {};
  const auto part = [&](GatedOp::Part result) {
    return gate.graph()->add1(std::make_unique<GatedOp>(kGelu, gate.shape().back(), 0, 0, result), {gate, up, dy});
  };
  return {part(GatedOp::Part::d_gate), part(GatedOp::Part::d_up)};
}
Var quick_geglu(Var gate, Var up) { return gated(kQuick, gate, up, gate.shape().back(), 0, 0); }
Var geglu_halves(Var u) { return halves(kGelu, u, false); }
Var glu_split(Var x) { return halves(kSigmoid, x, true); }

void geglu_row(const float* gate, const float* up, std::size_t n, float* y, Precision precision) {
  if (precision == Precision::reference) {
    for (std::size_t i = 0; i < n; i++) y[i] = static_cast<float>(kGelu.value(gate[i]) * up[i]);
  } else {
    product_loops::gelu_product(gate, up, n, y);
  }
}

Result<> record_geglu_halves(GpuCall& call, const GpuView& u, const GpuView& y) {
  return dispatch(call, kGelu.name, kGelu, 0, {u, 0}, {u, static_cast<std::uint32_t>(u.shape().back() / 2)}, u, y);
}

Result<> record_geglu(GpuCall& call, const GpuView& gate, const GpuView& up, std::uint32_t column, const GpuView& y) {
  return dispatch(call, kGelu.name, kGelu, 0, {gate, 0}, {up, column}, gate, y);
}

}  // namespace rullama
