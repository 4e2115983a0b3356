#include "ops/reduce/reduce.h"

#include <algorithm>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

// Sums over the elements that are `m` apart, of the values or of their squares.
class Reduce final : public Op {
 public:
  Reduce(Shape shape, bool squares, float s) : shape_(shape), squares_(squares), s_(s) {}
  std::string_view name() const override { return squares_ ? "sum_squares" : "sum_repeats"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const std::uint64_t n = in[0].shape.elements(), m = shape_.elements();
    if (in[0].dtype != DType::F32 || (m == 0 ? n != 0 : n % m != 0))
      return bad_argument(name(), "x", in[0], cat("F32 with a multiple of ", m, " elements"));
    return std::vector{TensorDesc{DType::F32, shape_}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const std::size_t m = y.size();
    call.crew.run(m, 64, [&](std::size_t begin, std::size_t end) {
      for (std::size_t j = begin; j < end; j++) {
        double sum = 0;
        for (std::size_t i = j; i < x.size(); i += m)
          sum += squares_ ? static_cast<double>(s_ * x[i]) * (s_ * x[i]) : x[i];
        y[j] = static_cast<float>(sum);
      }
    });
  }

  // First to one part for each of some workgroups, then the parts to the result: sums stay in one order on every run.
  Result<> record(GpuCall& call) const override {
    const auto n = static_cast<std::uint32_t>(call.in[0].shape().elements());
    const auto m = static_cast<std::uint32_t>(shape_.elements());
    if (m == 0) return {};
    const std::uint32_t repeats = n / m;
    const std::uint32_t parts = m >= 1024 ? 1 : std::clamp(repeats / 4096u, 1u, 1024u);
    if (parts == 1) return pass(call, call.in[0].buffer(), call.out[0].buffer(), n, m, 1, squares_);
    auto scratch = call.scratch(0, 4ull * m * parts);
    if (!scratch) return failed(scratch);
    if (auto ok = pass(call, call.in[0].buffer(), **scratch, n, m, parts, squares_); !ok) return ok;
    return pass(call, **scratch, call.out[0].buffer(), m * parts, m, 1, false);
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    if (squares_) return std::vector{scale_by(scale(in[0], 2 * s_ * s_), dout[0])};
    Var zeros = scale(in[0], 0);
    (void)graph;
    return std::vector{add(zeros, dout[0])};
  }

 private:
  Result<> pass(GpuCall& call, const gpu::Buffer& from, const gpu::Buffer& to, std::uint32_t n, std::uint32_t m,
                std::uint32_t parts, bool squares) const {
    const struct {
      std::uint32_t n, m, parts;
      float s;
    } params{n, m, parts, s_};
    const std::uint32_t group = call.caps.is_cpu() ? 1 : 64;
    const std::string key = cat("reduce_", squares ? "squares_" : "", group);
    const auto source = [&] {
      return gpu::Wgsl("ops/reduce/reduce.wgsl").constant("GROUP", group).constant("SQUARES", squares);
    };
    return call.dispatch(key, source, {gpu::read(from), gpu::write(to)}, params,
                         gpu::Grid::wrap(static_cast<std::uint64_t>(m) * parts));
  }

  Shape shape_;
  bool squares_;
  float s_;
};

}  // namespace

Var sum_repeats(Var x, const Shape& shape) {
  return x ? x.graph()->add1(std::make_unique<Reduce>(shape, false, 1.0f), {x}) : Var{};
}
Var sum_squares(Var x, float s) {
  return x ? x.graph()->add1(std::make_unique<Reduce>(Shape{1}, true, s), {x}) : Var{};
}

}  // namespace rullama
