#include "ops/dropout/dropout.h"

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

// Two rounds of a multiply-xorshift hash. As in dropout.wgsl.
std::uint32_t mixed(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

class Dropout final : public Op {
 public:
  Dropout(std::uint32_t stream, float rate) : stream_(stream), rate_(rate) {}
  std::string_view name() const override { return "dropout"; }

  // inputs: x, seed
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc one{DType::U32, {1}};
    if (in[0].dtype != DType::F32) return bad_argument(name(), "x", in[0], "F32");
    if (in[1] != one) return bad_argument(name(), "seed", in[1], one.str());
    if (!(rate_ >= 0 && rate_ < 1)) return fail(cat(name(), ": rate is ", rate_, ", expected at least 0 and below 1"));
    return std::vector{in[0]};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const std::uint32_t key = mixed(call.in[1].u32()[0] ^ mixed(stream_)), bar = threshold();
    const float scale = 1 / (1 - rate_);
    call.crew.run(x.size(), 8192, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++)
        y[i] = mixed(static_cast<std::uint32_t>(i) ^ key) >= bar ? x[i] * scale : 0.0f;
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t n = call.in[0].shape().elements();
    if (n == 0) return {};
    const struct {
      std::uint32_t n, stream, bar;
      float scale;
    } params{static_cast<std::uint32_t>(n), stream_, threshold(), 1 / (1 - rate_)};
    return call.dispatch(
        "dropout", [] { return gpu::Wgsl("ops/dropout/dropout.wgsl"); },
        {read(call.in[0]), read(call.in[1]), write(call.out[0])}, params, gpu::Grid::wrap((n + 255) / 256));
  }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>&) const override {
    return std::vector{dropout(dout[0], in[1], stream_, rate_), Var{}};
  }

 private:
  // Hashes below it are dropped.
  [[nodiscard]] std::uint32_t threshold() const {
    return static_cast<std::uint32_t>(static_cast<double>(rate_) * 4294967296.0);
  }

  std::uint32_t stream_;
  float rate_;
};

}  // namespace

Var dropout(Var x, Var seed, std::uint32_t stream, float rate) {
  return x ? x.graph()->add1(std::make_unique<Dropout>(stream, rate), {x, seed}) : Var{};
}

}  // namespace rullama
