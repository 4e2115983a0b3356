#include "ops/accumulate/accumulate.h"

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

// inputs: state, x, keep; no outputs
class Accumulate final : public Op {
 public:
  explicit Accumulate(std::uint64_t first) : first_(first) {}
  std::string_view name() const override { return "accumulate"; }
  std::uint32_t writes() const override { return 1; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &state = in[0], &x = in[1], one{DType::F32, {1}};
    if (state.dtype != DType::F32) return bad_argument(name(), "state", state, "F32");
    const std::uint64_t n = state.shape.elements();
    if (x.dtype != DType::F32 || first_ > n || x.shape.elements() > n - first_)
      return bad_argument(name(), "x", x, cat("F32 with at most ", first_ > n ? 0 : n - first_, " elements"));
    if (in[2] != one) return bad_argument(name(), "keep", in[2], one.str());
    return std::vector<TensorDesc>{};
  }

  void eval(const CpuCall& call) const override {
    const auto state = call.in[0].f32().subspan(first_), x = call.in[1].f32();
    const float keep = call.in[2].f32()[0];
    call.crew.run(x.size(), 16384, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) state[i] = keep * state[i] + x[i];
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t n = call.in[1].shape().elements();
    if (n == 0) return {};
    const struct {
      std::uint32_t n, first, pad[2] = {};
    } params{static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(first_)};
    return call.dispatch(
        "accumulate", [] { return gpu::Wgsl("ops/accumulate/accumulate.wgsl"); },
        {write(call.in[0]), read(call.in[1]), read(call.in[2])}, params, gpu::Grid::wrap((n + 255) / 256));
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc>) const override {
    const auto n = static_cast<double>(in[1].shape.elements());
    return {12 * n, 2 * n};
  }

 private:
  std::uint64_t first_;
};

}  // namespace

void accumulate(Var state, Var x, Var keep, std::uint64_t first) {
  if (!x) return;
  const Var in[] = {state, x, keep};
  (void)x.graph()->add(std::make_unique<Accumulate>(first), in);
}

}  // namespace rullama
