#include "ops/probe/probe.h"

#include <algorithm>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

constexpr std::uint64_t kChains = 32;  // of a lane

class ReadProbe final : public Op {
 public:
  std::string_view name() const override { return "read_probe"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const std::uint64_t items = in[0].shape.elements() / 4;
    if (in[0].dtype != DType::F32 || in[0].shape.elements() % 4)
      return bad_argument(name(), "x", in[0], "F32 with a multiple of 4 elements");
    // enough threads for the largest devices, each with at least 16 loads
    return std::vector{TensorDesc{DType::F32, {std::clamp<std::uint64_t>(items / 16 / 256, 1, 2048) * 256}}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const std::size_t pieces = std::min<std::size_t>(y.size(), 64), each = x.size() / pieces;
    call.crew.run(pieces, 1, [&](std::size_t begin, std::size_t end) {
      for (std::size_t piece = begin; piece < end; piece++) {
        const float* p = x.data() + piece * each;
        float sums[32] = {};
        for (std::size_t i = 0; i + 32 <= each; i += 32)
          for (std::size_t j = 0; j < 32; j++) sums[j] += p[i + j];
        y[piece] = 0;
        for (const float s : sums) y[piece] += s;
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const struct {
      std::uint32_t n, threads;
    } params{static_cast<std::uint32_t>(call.in[0].shape().elements() / 4),
             static_cast<std::uint32_t>(call.out[0].shape().elements())};
    return call.dispatch(
        name(), [] { return gpu::Wgsl("ops/probe/read.wgsl"); }, {read(call.in[0]), write(call.out[0])}, params,
        gpu::Grid{params.threads / 256, 1, 1});
  }
};

class FmaProbe final : public Op {
 public:
  explicit FmaProbe(std::uint32_t steps) : steps_(steps) {}
  std::string_view name() const override { return "fma_probe"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in[0].dtype != DType::F32 || in[0].shape.elements() % 256)
      return bad_argument(name(), "x", in[0], "F32 with a multiple of 256 elements");
    return std::vector{in[0]};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    call.crew.run(x.size(), 256, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) {
        float chains[kChains];
        for (std::size_t j = 0; j < kChains; j++) chains[j] = x[i] + static_cast<float>(j / 4);
        for (std::uint32_t s = 0; s < steps_; s++)
          for (float& v : chains) v = v * 0.999f + x[i];
        y[i] = 0;
        for (const float v : chains) y[i] += v;
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const struct {
      std::uint32_t steps, pad = 0;
    } params{steps_};
    const std::uint64_t lanes = call.in[0].shape().elements();
    return call.dispatch(
        name(), [] { return gpu::Wgsl("ops/probe/fma.wgsl"); }, {read(call.in[0]), write(call.out[0])}, params,
        gpu::Grid{static_cast<std::uint32_t>(lanes / 256), 1, 1});
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = static_cast<double>(in[0].shape.elements() * kChains * 2) * steps_;
    return cost;
  }

 private:
  std::uint32_t steps_;
};

}  // namespace

Var read_probe(Var x) { return x ? x.graph()->add1(std::make_unique<ReadProbe>(), {x}) : Var{}; }
Var fma_probe(Var x, std::uint32_t steps) {
  return x ? x.graph()->add1(std::make_unique<FmaProbe>(steps), {x}) : Var{};
}

}  // namespace rullama
