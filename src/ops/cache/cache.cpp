#include "ops/cache/cache.h"

#include <algorithm>
#include <cstring>

#include "base/half.h"
#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

constexpr float kLargestHalf = 65504;

// inputs: cache, x, positions; no outputs
class CacheWrite final : public Op {
 public:
  std::string_view name() const override { return "cache_write"; }
  std::uint32_t writes() const override { return 1; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &cache = in[0], &x = in[1], positions{DType::U32, {x.shape[0]}};
    if (x.dtype != DType::F32 || x.shape.rank() != 3) return bad_argument(name(), "x", x, "F32 [rows, heads, width]");
    const bool half = cache.dtype == DType::F16;
    if ((cache.dtype != DType::F32 && !half) || cache.shape.rank() != 3 || cache.shape[1] != x.shape[1] ||
        cache.shape[2] != x.shape[2])
      return bad_argument(name(), "cache", cache, cat("F32 or F16 [slots, ", x.shape[1], ", ", x.shape[2], "]"));
    if (half && x.shape[2] % 2) return bad_argument(name(), "cache", cache, "an even width for F16");
    if (in[2] != positions) return bad_argument(name(), "positions", in[2], positions.str());
    if (x.shape[0] > cache.shape[0])
      return fail(cat(name(), ": ", x.shape[0], " rows do not fit into a cache of ", cache.shape[0], " slots"));
    return std::vector<TensorDesc>{};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &cache = call.in[0], &x = call.in[1];
    const std::size_t slots = cache.shape()[0], n = x.shape()[1] * x.shape()[2];
    const auto positions = call.in[2].u32();
    call.crew.run(x.shape()[0], 1 + 16384 / (n + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; t++) {
        const float* from = x.f32().data() + t * n;
        const std::size_t at = positions[t] % slots * n;
        if (cache.desc.dtype == DType::F32) {
          std::memcpy(cache.f32().data() + at, from, n * sizeof(float));
          continue;
        }
        auto* to = reinterpret_cast<std::uint16_t*>(cache.data) + at;
        for (std::size_t i = 0; i < n; i++) to[i] = f32_to_f16(std::clamp(from[i], -kLargestHalf, kLargestHalf));
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView &cache = call.in[0], &x = call.in[1];
    const bool half = cache.desc.dtype == DType::F16;
    if (x.shape().elements() == 0) return {};
    if (cache.parts.size() != 1)
      return fail(cat(name(), ": a cache of ", cache.desc.str(), " is larger than the ",
                      bytes_text(static_cast<double>(call.caps.max_binding_bytes)),
                      " that this device binds at once; use a smaller context"));
    const auto words = static_cast<std::uint32_t>(x.shape()[1] * x.shape()[2] / (half ? 2 : 1));  // of a slot
    const struct {
      std::uint32_t threads, words, slots, pad = 0;
    } params{static_cast<std::uint32_t>(x.shape()[0]) * words, words, static_cast<std::uint32_t>(cache.shape()[0])};
    const auto source = [&] { return gpu::Wgsl("ops/cache/cache.wgsl").constant("HALVES", half); };
    return call.dispatch(half ? "cache_write_f16" : "cache_write_f32", source,
                         {write(cache), read(x), read(call.in[2])}, params,
                         gpu::Grid::wrap((params.threads + 63) / 64));
  }
};

}  // namespace

void cache_write(Var cache, Var x, Var positions) {
  if (!x) return;
  const Var in[] = {cache, x, positions};
  (void)x.graph()->add(std::make_unique<CacheWrite>(), in);
}

}  // namespace rullama
