#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_call.h"
#include "ops/reduce/reduce.h"

namespace rullama {
namespace {

enum class Kind : std::uint8_t { add, multiply };

// y[i] = a[i] + s b[i mod n], or a[i] b[i mod n].
class BinaryOp final : public Op {
 public:
  BinaryOp(Kind kind, float s) : kind_(kind), s_(s) {}
  std::string_view name() const override { return kind_ == Kind::add ? "add" : "multiply"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in[0].dtype != DType::F32) return bad_argument(name(), "a", in[0], "F32");
    const std::uint64_t n = in[0].shape.elements(), m = in[1].shape.elements();
    if (in[1].dtype != DType::F32 || (m == 0 ? n != 0 : n % m != 0))
      return bad_argument(name(), "b", in[1],
                          cat("F32 with a count of elements that divides that of ", in[0].shape.str()));
    return std::vector{in[0]};
  }

  void eval(const CpuCall& call) const override {
    const auto a = call.in[0].f32(), b = call.in[1].f32(), y = call.out[0].f32();
    const std::size_t m = b.size();
    call.crew.run(a.size(), 8192, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end;) {
        const std::size_t from = i % m, n = std::min(end - i, m - from);  // a run without wrapping, which vectorises
        const float *pa = a.data() + i, *pb = b.data() + from;
        float* py = y.data() + i;
        if (kind_ == Kind::multiply) {
          for (std::size_t j = 0; j < n; j++) py[j] = pa[j] * pb[j];
        } else {
          for (std::size_t j = 0; j < n; j++) py[j] = pa[j] + s_ * pb[j];
        }
        i += n;
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t n = call.in[0].shape().elements();
    if (n == 0) return {};
    const struct {
      std::uint32_t n, m;
      float s;
      std::uint32_t pad = 0;
    } params{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(call.in[1].shape().elements()), s_};
    const auto source = [&] {
      return gpu::Wgsl("ops/elementwise/binary.wgsl").constant("MULTIPLY", kind_ == Kind::multiply);
    };
    const std::initializer_list<gpu::Binding> bindings{read(call.in[0]), read(call.in[1]), write(call.out[0])};
    return call.dispatch(name(), source, bindings, params, gpu::Grid::wrap((n + 255) / 256));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    const auto times = [&](Var a, Var b) {
      return graph.add1(std::make_unique<BinaryOp>(Kind::multiply, 1.0f), {a, b});
    };
    std::vector<Var> din(2);
    if (wanted[0]) din[0] = kind_ == Kind::add ? dout[0] : times(dout[0], in[1]);
    if (wanted[1]) {
      Var each = kind_ == Kind::add ? dout[0] : times(dout[0], in[0]);
      if (in[1].shape().elements() != in[0].shape().elements()) each = sum_repeats(each, in[1].shape());
      din[1] = kind_ == Kind::add && s_ != 1 ? scale(each, s_) : each;
    }
    return din;
  }

 private:
  Kind kind_;
  float s_;
};

Var binary(Kind kind, Var a, Var b, float s = 1) {
  return a ? a.graph()->add1(std::make_unique<BinaryOp>(kind, s), {a, b}) : Var{};
}

}  // namespace

Var add(Var a, Var b) { return binary(Kind::add, a, b); }
Var add_scaled(Var a, Var b, float s) { return binary(Kind::add, a, b, s); }
Var multiply(Var a, Var b) { return binary(Kind::multiply, a, b); }
Var scale_by(Var x, Var s) { return binary(Kind::multiply, x, s); }
Var bias(Var x, Var b) { return binary(Kind::add, x, b); }

}  // namespace rullama
