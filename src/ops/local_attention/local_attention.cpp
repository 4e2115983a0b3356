#include "ops/local_attention/local_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

std::uint32_t u32(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

// inputs: q, k, v, relative
class LocalAttention final : public Op {
 public:
  explicit LocalAttention(const LocalAttentionOptions& options) : options_(options) {}
  std::string_view name() const override { return "local_attention"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &q = in[0], &relative = in[3];
    if (q.dtype != DType::F32 || q.shape.rank() != 3) return bad_argument(name(), "q", q, "F32 [rows, heads, width]");
    if (in[1] != q) return bad_argument(name(), "k", in[1], q.str());
    if (in[2] != q) return bad_argument(name(), "v", in[2], q.str());
    if (relative.dtype != DType::F32 || relative.shape.rank() != 3 || relative.shape[1] != q.shape[1] ||
        relative.shape[2] != q.shape[2])
      return bad_argument(name(), "relative", relative, cat("F32 [distances, ", q.shape[1], ", ", q.shape[2], "]"));
    if (!(options_.cap >= 0)) return fail(cat(name(), ": cap is ", options_.cap, ", expected 0 or more"));
    return std::vector{q};
  }

  void eval(const CpuCall& call) const override {
    const auto q = call.in[0].f32(), k = call.in[1].f32(), v = call.in[2].f32(), relative = call.in[3].f32();
    const auto y = call.out[0].f32();
    const std::size_t rows = call.in[0].shape()[0], heads = call.in[0].shape()[1], d = call.in[0].shape()[2];
    const std::size_t distances = call.in[3].shape()[0], row = heads * d;
    call.crew.run(rows * heads, 1 + 4096 / (d * (options_.past + options_.future + 1) + 1), [&](auto begin, auto end) {
      std::vector<double> scores, sums(d);
      for (std::size_t i = begin; i < end; i++) {
        const std::size_t t = i / heads, head = i % heads * d;
        const std::size_t first = t > options_.past ? t - options_.past : 0;
        const std::size_t last = std::min(rows - 1, t + options_.future);
        double most = -INFINITY, total = 0;
        scores.clear();
        for (std::size_t u = first; u <= last; u++) {
          double s = 0;
          for (std::size_t e = 0; e < d; e++) s += static_cast<double>(q[i * d + e]) * k[u * row + head + e];
          if (u <= t && t - u < distances)
            for (std::size_t e = 0; e < d; e++)
              s += static_cast<double>(q[i * d + e]) * relative[(t - u) * row + head + e];
          if (options_.cap > 0) s = options_.cap * std::tanh(s / options_.cap);
          most = std::max(most, s);
          scores.push_back(s);
        }
        std::fill(sums.begin(), sums.end(), 0.0);
        for (std::size_t u = first; u <= last; u++) {
          const double p = std::exp(scores[u - first] - most);
          total += p;
          for (std::size_t e = 0; e < d; e++) sums[e] += p * v[u * row + head + e];
        }
        for (std::size_t e = 0; e < d; e++) y[i * d + e] = static_cast<float>(sums[e] / total);
      }
    });
  }

  // Scores of all visible pairs first, then each element of the result from its row's scores.
  Result<> record(GpuCall& call) const override {
    const Shape& q = call.in[0].shape();
    if (q.elements() == 0) return {};
    const std::uint32_t rows = u32(q[0]);
    // no distance that the sequence does not have
    const std::uint32_t past = std::min(options_.past, rows - 1), future = std::min(options_.future, rows - 1);
    const std::uint64_t pairs = q[0] * q[1] * (std::uint64_t{past} + future + 1);
    auto scores = call.scratch(0, pairs * 4);
    if (!scores) return failed(scores);
    const struct {
      std::uint32_t rows, heads, d, past, span, distances;
      float cap;
      std::uint32_t pad = 0;
    } params{rows, u32(q[1]), u32(q[2]), past, past + future + 1, u32(call.in[3].shape()[0]), options_.cap};
    const auto score = [] {
      return gpu::Wgsl("ops/local_attention/scores.wgsl")
          .file("ops/local_attention/params.wgsl")
          .file("ops/elementwise/functions.wgsl");
    };
    if (auto ok = call.dispatch("local_attention_scores", score,
                                {read(call.in[0]), read(call.in[1]), read(call.in[3]), gpu::write(**scores)}, params,
                                gpu::Grid::wrap((pairs + 63) / 64));
        !ok)
      return ok;
    const auto sum = [] {
      return gpu::Wgsl("ops/local_attention/values.wgsl").file("ops/local_attention/params.wgsl");
    };
    return call.dispatch("local_attention_values", sum, {gpu::read(**scores), read(call.in[2]), write(call.out[0])},
                         params, gpu::Grid::wrap((q.elements() + 63) / 64));
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    const double span = std::min(1.0 + options_.past + options_.future, static_cast<double>(in[0].shape[0]));
    cost.flops = 6 * static_cast<double>(in[0].shape.elements()) * span;
    return cost;
  }

 private:
  LocalAttentionOptions options_;
};

}  // namespace

Var local_attention(Var q, Var k, Var v, Var relative, const LocalAttentionOptions& options) {
  return q ? q.graph()->add1(std::make_unique<LocalAttention>(options), {q, k, v, relative}) : Var{};
}

}  // namespace rullama
