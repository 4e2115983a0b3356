#include "ops/reduce/reduce.h"

#include <algorithm>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_call.h"
#include "ops/reduce/row_plan.h"
#include "ops/transpose/transpose.h"

namespace rullama {
namespace {

class Reduce final : public Op {
 public:
  enum class Kind : std::uint8_t { repeats, rows, squares };
  Reduce(Kind kind, Shape shape, float s) : kind_(kind), shape_(shape), s_(s) {}
  std::string_view name() const override {
    static constexpr std::string_view names[] = {"sum_repeats", "sum_rows", "sum_squares"};
    return names[static_cast<std::size_t>(kind_)];
  }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const std::uint64_t n = in[0].shape.elements(), m = shape_.elements();
    if (in[0].dtype != DType::F32 || (m == 0 ? n != 0 : n % m != 0))
      return bad_argument(name(), "x", in[0], cat("F32 with a multiple of ", m, " elements"));
    return std::vector{TensorDesc{DType::F32, shape_}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    if (y.empty()) return;
    const std::size_t m = y.size(), repeats = x.size() / m;
    const std::size_t step_j = kind_ == Kind::repeats ? 1 : repeats, step_r = kind_ == Kind::repeats ? m : 1;
    call.crew.run(m, 1 + 16384 / (repeats + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t j = begin; j < end; j++) {
        double sum = 0;
        for (std::size_t r = 0; r < repeats; r++) {
          const double v = x[j * step_j + r * step_r];
          sum += kind_ == Kind::squares ? s_ * v * s_ * v : v;
        }
        y[j] = static_cast<float>(sum);
      }
    });
  }

  // A long sum is split into parts, then the parts are summed: in the same order on every run.
  Result<> record(GpuCall& call) const override {
    const auto m = static_cast<std::uint32_t>(shape_.elements());
    if (m == 0) return {};
    const auto repeats = static_cast<std::uint32_t>(call.in[0].shape().elements() / m);
    const bool apart = kind_ == Kind::repeats;
    Pass pass{repeats, m, 1, apart ? 1 : repeats, apart ? m : 1, s_};
    const gpu::Buffer &from = call.in[0].buffer(), &to = call.out[0].buffer();
    if (m < 1024) pass.parts = std::clamp(repeats / 4096u, 1u, 1024u);
    if (pass.parts == 1) return run(call, pass, from, to, kind_ == Kind::squares);
    auto scratch = call.scratch(0, 4ull * m * pass.parts);
    if (!scratch) return failed(scratch);
    if (auto ok = run(call, pass, from, **scratch, kind_ == Kind::squares); !ok) return ok;
    return run(call, {pass.parts, m, 1, 1, m, 1}, **scratch, to, false);
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    const std::uint64_t n = in[0].shape().elements(), m = shape_.elements();
    const auto repeats = static_cast<std::uint32_t>(m ? n / m : 0);
    switch (kind_) {
      case Kind::squares: return std::vector{scale_by(scale(in[0], 2 * s_ * s_), dout[0])};
      case Kind::rows: return std::vector{upsample(graph.reshape(dout[0], {m, 1}), repeats)};
      case Kind::repeats: return std::vector{transpose(upsample(graph.reshape(dout[0], {m, 1}), repeats))};
    }
    return std::vector<Var>(1);
  }

 private:
  struct Pass {
    std::uint32_t repeats, m, parts, step_j, step_r;
    float s;
  };
  static Result<> run(GpuCall& call, const Pass& pass, const gpu::Buffer& from, const gpu::Buffer& to, bool squares) {
    const std::uint64_t rows = static_cast<std::uint64_t>(pass.m) * pass.parts;
    RowPlan plan = plan_rows(call.caps, rows, pass.repeats / pass.parts);
    if (pass.step_j == 1 && pass.m >= 64)
      plan.way = RowPlan::Way::thread, plan.group = 64;  // neighbours read neighbours
    plan.four = false;
    const auto source = [&] { return plan.source("ops/reduce/reduce.wgsl").constant("SQUARES", squares); };
    return call.dispatch(plan.key(squares ? "sum_squares" : "sum"), source, {gpu::read(from), gpu::write(to)}, pass,
                         plan.grid(rows));
  }

  Kind kind_;
  Shape shape_;
  float s_;
};

Var reduce(Reduce::Kind kind, Var x, const Shape& shape, float s = 1) {
  return x ? x.graph()->add1(std::make_unique<Reduce>(kind, shape, s), {x}) : Var{};
}

}  // namespace

Var sum_repeats(Var x, const Shape& shape) { return reduce(Reduce::Kind::repeats, x, shape); }
Var sum_rows(Var x, const Shape& shape) { return reduce(Reduce::Kind::rows, x, shape); }
Var sum_squares(Var x, float s) { return reduce(Reduce::Kind::squares, x, {1}, s); }

}  // namespace rullama
