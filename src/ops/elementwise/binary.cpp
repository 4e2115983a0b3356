#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_call.h"
#include "ops/reduce/reduce.h"

namespace rullama {
namespace {

enum class Part : std::uint8_t { value, slope_a, slope_b };

enum class Meeting : std::uint8_t {
  repeats,  // b is repeated, a whole number of times
  wraps,    // b is repeated, perhaps cut at the end
  by_row,   // one b for each row of a
};

// A function of a, b and a parameter s, and its slopes, each as C++ and as WGSL.
struct Binary {
  std::string_view name;
  Meeting meeting;
  bool sum;  // a + s b: the slopes are constants
  double (*form[3])(double a, double b, double s);
  std::string_view wgsl[3];
};

constexpr Binary kAdd{"add",
                      Meeting::repeats,
                      true,
                      {[](double a, double b, double s) { return a + s * b; },
                       [](double, double, double) { return 1.0; }, [](double, double, double s) { return s; }},
                      {"a + s * b", "1.0", "s"}};
constexpr Binary kMultiply{"multiply",
                           Meeting::repeats,
                           false,
                           {[](double a, double b, double) { return a * b; },
                            [](double, double b, double) { return b; }, [](double a, double, double) { return a; }},
                           {"a * b", "b", "a"}};
constexpr Binary renamed(Binary f, std::string_view name, Meeting meeting) {
  f.name = name;
  f.meeting = meeting;
  return f;
}
constexpr Binary kBias = renamed(kAdd, "bias", Meeting::repeats);
constexpr Binary kScaleBy = renamed(kMultiply, "scale_by", Meeting::wraps);
constexpr Binary kSnake{
    "snake",
    Meeting::by_row,
    false,
    {[](double a, double b, double) { return a + std::sin(a * b) * std::sin(a * b) / b; },
     [](double a, double b, double) { return 1 + std::sin(2 * a * b); },
     [](double a, double b, double) { return (a * std::sin(2 * a * b) - std::sin(a * b) * std::sin(a * b) / b) / b; }},
    {"a + squared(sine(a * b)) / b", "1.0 + sine(2.0 * a * b)",
     "(a * sine(2.0 * a * b) - squared(sine(a * b)) / b) / b"}};

// Forward: inputs a, b. A slope: a, b, dy, and the result has the shape of a: b's gradient is still to be summed.
class BinaryOp final : public Op {
 public:
  BinaryOp(const Binary& f, float s, Part part) : f_(f), s_(s), part_(part) {}
  std::string_view name() const override { return f_.name; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const std::uint64_t n = in[0].shape.elements(), m = in[1].shape.elements();
    if (in[0].dtype != DType::F32) return bad_argument(name(), "a", in[0], "F32");
    const bool by_row = f_.meeting == Meeting::by_row;
    const bool fits = m == 0 ? n == 0 : n % m == 0 || f_.meeting == Meeting::wraps;
    if (in[1].dtype != DType::F32 || !fits || (by_row && m != in[0].shape.rows()))
      return bad_argument(name(), "b", in[1],
                          by_row ? cat("F32 [", in[0].shape.rows(), "]")
                                 : cat("F32 with a count of elements that divides that of ", in[0].shape.str()));
    return std::vector{in[0]};
  }

  void eval(const CpuCall& call) const override {
    const auto a = call.in[0].f32(), b = call.in[1].f32(), y = call.out[0].f32();
    if (a.empty()) return;
    const std::size_t m = b.size(), row = a.size() / m;
    const bool by_row = f_.meeting == Meeting::by_row;
    if (part_ == Part::value && !by_row && call.precision != Precision::reference) return eval_runs(call);
    const auto form = f_.form[static_cast<std::size_t>(part_)];
    call.crew.run(a.size(), 4096, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) {
        const double v = form(a[i], b[by_row ? i / row : i % m], s_);
        y[i] = static_cast<float>(part_ == Part::value ? v : v * call.in[2].f32()[i]);
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t n = call.in[0].shape().elements(), m = call.in[1].shape().elements();
    if (n == 0) return {};
    const struct {
      std::uint32_t n, m, row;
      float s;
    } params{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(m), static_cast<std::uint32_t>(n / m), s_};
    static constexpr std::string_view suffixes[] = {"", "_slope_a", "_slope_b"};
    const auto part = static_cast<std::size_t>(part_);
    const auto source = [&] {
      return gpu::Wgsl("ops/elementwise/binary.wgsl")
          .file("ops/elementwise/functions.wgsl")
          .constant("BY_ROW", f_.meeting == Meeting::by_row)
          .constant("BACKWARD", part_ != Part::value)
          .text(cat("fn function_of(a: f32, b: f32, s: f32) -> f32 { return ", f_.wgsl[part], "; }"));
    };
    return call.dispatch(cat(name(), suffixes[part]), source,
                         {read(call.in[0]), read(call.in[1]), read(call.in.back()), write(call.out[0])}, params,
                         gpu::Grid::wrap((n + 255) / 256));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var> out,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    if (part_ != Part::value) return Op::derivative(graph, in, out, dout, wanted);
    const auto sloped = [&](Part part) {
      return f_.sum ? dout[0] : graph.add1(std::make_unique<BinaryOp>(f_, s_, part), {in[0], in[1], dout[0]});
    };
    std::vector<Var> din(2);
    if (wanted[0]) din[0] = sloped(Part::slope_a);
    if (wanted[1]) {
      const std::uint64_t n = in[0].shape().elements(), m = in[1].shape().elements();
      if (m != 0 && n % m != 0)
        return fail(ErrorCode::unsupported, cat(name(), ": no gradient for b where its last repeat is cut"));
      Var d = sloped(Part::slope_b);
      if (m != n) d = f_.meeting == Meeting::by_row ? sum_rows(d, in[1].shape()) : sum_repeats(d, in[1].shape());
      din[1] = f_.sum && s_ != 1 ? scale(d, s_) : d;
    }
    return din;
  }

 private:
  // Sums and products in f32, in runs over which b does not start again, which the compiler turns into vector code.
  void eval_runs(const CpuCall& call) const {
    const auto a = call.in[0].f32(), b = call.in[1].f32(), y = call.out[0].f32();
    const std::size_t m = b.size();
    call.crew.run(a.size(), 8192, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end;) {
        const std::size_t from = i % m, n = std::min(end - i, m - from);
        const float *pa = a.data() + i, *pb = b.data() + from;
        float* py = y.data() + i;
        if (!f_.sum) {
          for (std::size_t j = 0; j < n; j++) py[j] = pa[j] * pb[j];
        } else {
          for (std::size_t j = 0; j < n; j++) py[j] = pa[j] + s_ * pb[j];
        }
        i += n;
      }
    });
  }

  const Binary& f_;
  float s_;
  Part part_;
};

Var binary(const Binary& f, Var a, Var b, float s = 1) {
  return a ? a.graph()->add1(std::make_unique<BinaryOp>(f, s, Part::value), {a, b}) : Var{};
}

}  // namespace

Var add(Var a, Var b) { return binary(kAdd, a, b); }
Var add_scaled(Var a, Var b, float s) { return binary(kAdd, a, b, s); }
Var multiply(Var a, Var b) { return binary(kMultiply, a, b); }
Var scale_by(Var x, Var s) { return binary(kScaleBy, x, s); }
Var bias(Var x, Var b) { return binary(kBias, x, b); }
Var snake(Var x, Var a) { return binary(kSnake, x, a); }

}  // namespace rullama
