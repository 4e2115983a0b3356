#include "ops/transpose/transpose.h"

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"
#include "ops/reduce/reduce.h"

namespace rullama {
namespace {

Result<> record_copy(GpuCall& call, bool swap, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  const std::uint64_t total = call.out[0].shape().elements();
  if (total == 0) return {};
  const auto u = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const struct {
    std::uint32_t total, b, c, d;
  } params{u(total), u(b), u(c), u(d)};
  const auto source = [&] { return gpu::Wgsl("ops/transpose/transpose.wgsl").constant("SWAP", swap); };
  return call.dispatch(swap ? "swap_axes" : "upsample", source, {read(call.in[0]), write(call.out[0])}, params,
                       gpu::Grid::wrap((total + 255) / 256));
}

// The first two dimensions change places.
class SwapAxes final : public Op {
 public:
  SwapAxes(std::string_view name, std::size_t rank) : name_(name), rank_(rank) {}
  std::string_view name() const override { return name_; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const Shape& s = in[0].shape;
    if (in[0].dtype != DType::F32 || s.rank() != rank_)
      return bad_argument(name(), "x", in[0], cat("F32 of ", rank_, " dimensions"));
    return std::vector{TensorDesc{DType::F32, rank_ == 2 ? Shape{s[1], s[0]} : Shape{s[1], s[0], s[2]}}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const Shape& s = call.in[0].shape();
    const std::size_t rows = s[0], columns = s[1], d = rank_ == 2 ? 1 : s[2];
    call.crew.run(columns, 1 + 8192 / (rows * d + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; c++)
        for (std::size_t r = 0; r < rows; r++)
          for (std::size_t i = 0; i < d; i++) y[(c * rows + r) * d + i] = x[(r * columns + c) * d + i];
    });
  }

  Result<> record(GpuCall& call) const override {
    const Shape& s = call.in[0].shape();
    return record_copy(call, true, s[0], s[1], rank_ == 2 ? 1 : s[2]);
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var>, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    return std::vector{graph.add1(std::make_unique<SwapAxes>(name_, rank_), {dout[0]})};
  }

 private:
  std::string_view name_;
  std::size_t rank_;
};

class Upsample final : public Op {
 public:
  explicit Upsample(std::uint32_t factor) : factor_(factor) {}
  std::string_view name() const override { return "upsample"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const Shape& s = in[0].shape;
    if (in[0].dtype != DType::F32 || s.rank() != 2) return bad_argument(name(), "x", in[0], "F32 [C, T]");
    if (factor_ == 0) return fail(cat(name(), ": a factor of 0, expected 1 or more"));
    return std::vector{TensorDesc{DType::F32, {s[0], s[1] * factor_}}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    for (std::size_t i = 0; i < y.size(); i++) y[i] = x[i / factor_];
  }

  Result<> record(GpuCall& call) const override { return record_copy(call, false, 1, factor_, 1); }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>&) const override {
    return std::vector{sum_rows(dout[0], in[0].shape())};
  }

 private:
  std::uint32_t factor_;
};

Var swapped(std::string_view name, std::size_t rank, Var x) {
  return x ? x.graph()->add1(std::make_unique<SwapAxes>(name, rank), {x}) : Var{};
}

}  // namespace

Var transpose(Var x) { return swapped("transpose", 2, x); }
Var swap_heads(Var x) { return swapped("swap_heads", 3, x); }
Var upsample(Var x, std::uint32_t factor) {
  return x ? x.graph()->add1(std::make_unique<Upsample>(factor), {x}) : Var{};
}

}  // namespace rullama
