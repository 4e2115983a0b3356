#include "ops/top_k/top_k.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

constexpr std::uint32_t kRun = 1024;  // values that a workgroup sorts: 8 KiB with their places

// An unsigned number in the order of the values, above all others for what is no finite number.
std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value == 0 ? 0.0f : value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return UINT32_MAX;
  return bits ^ (bits >> 31 ? UINT32_MAX : 0x80000000u);
}
std::uint32_t bits_of(std::uint32_t key) { return key ^ (key >> 31 ? 0x80000000u : UINT32_MAX); }

class TopKOp final : public Op {
 public:
  explicit TopKOp(std::uint32_t k) : k_(k) {}
  std::string_view name() const override { return "top_k"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32 || x.shape.rank() == 0) return bad_argument(name(), "x", x, "F32 [..., n]");
    const std::uint64_t most = std::min<std::uint64_t>(kMostBest, x.shape.back());
    if (k_ < 1 || k_ > most) return fail(cat(name(), ": k is ", k_, ", expected 1 to ", most, " of ", x.str()));
    return std::vector{TensorDesc{DType::U32, {x.shape.rows(), k_, 2}}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView& x = call.in[0];
    call.crew.run(x.shape().rows(), 1, [&](std::size_t begin, std::size_t end) {
      struct Place {
        std::uint32_t key, id;
      };
      std::vector<Place> places(x.shape().back());
      for (std::size_t r = begin; r < end; r++) {
        for (std::uint32_t i = 0; i < places.size(); i++) places[i] = {key_of(x.row(r)[i]), i};
        std::partial_sort(places.begin(), places.begin() + k_, places.end(), [](const Place& a, const Place& b) {
          return a.key > b.key || (a.key == b.key && a.id < b.id);
        });
        for (std::uint32_t i = 0; i < k_; i++) {
          call.out[0].u32()[2 * (r * k_ + i)] = bits_of(places[i].key);
          call.out[0].u32()[2 * (r * k_ + i) + 1] = places[i].id;
        }
      }
    });
  }

  // Every pass keeps the k best of each run of kRun, until a row is one run.
  Result<> record(GpuCall& call) const override {
    const std::uint64_t rows = call.in[0].shape().rows();
    std::uint64_t n = call.in[0].shape().back();
    if (rows == 0) return {};
    const std::uint32_t keep = std::bit_ceil(k_);
    const gpu::Buffer* from = &call.in[0].buffer();
    for (std::size_t pass = 0;; pass++) {
      const std::uint64_t runs = (n + kRun - 1) / kRun;
      const bool first = pass == 0, last = runs == 1;
      const gpu::Buffer* to = &call.out[0].buffer();
      if (!last) {
        auto pairs = call.scratch(pass, rows * runs * k_ * 8);
        if (!pairs) return failed(pairs);
        to = *pairs;
      }
      const auto u = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
      const struct {
        std::uint32_t n, runs, all_runs, k;
      } params{u(n), u(runs), u(rows * runs), k_};
      const auto source = [&] {
        return gpu::Wgsl("ops/top_k/top_k.wgsl")
            .constant("RUN", kRun)
            .constant("KEEP", keep)
            .constant("FIRST", first)
            .constant("LAST", last);
      };
      auto ok =
          call.dispatch(cat("top_k_", keep, first ? "_first" : "", last ? "_last" : ""), source,
                        {gpu::read(*from), gpu::read(*from), gpu::write(*to)}, params, gpu::Grid::wrap(rows * runs));
      if (!ok || last) return ok;
      from = to;
      n = runs * k_;
    }
  }

 private:
  std::uint32_t k_;
};

}  // namespace

Var top_k(Var x, std::uint32_t k) { return x ? x.graph()->add1(std::make_unique<TopKOp>(k), {x}) : Var{}; }

}  // namespace rullama
