#include "ops/cross_entropy/cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"
#include "ops/reduce/row_plan.h"

namespace rullama {
namespace {

constexpr float kLowest = -3.0e38f;  // as in the kernel

std::uint32_t u32(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

Result<> check(std::string_view op, const TensorDesc& logits, const TensorDesc& targets, const VocabularyTile& tile) {
  if (logits.dtype != DType::F32 || logits.shape.rank() != 2) return bad_argument(op, "logits", logits, "F32 [B, V]");
  const TensorDesc ids{DType::U32, {logits.shape[0]}};
  if (targets != ids) return bad_argument(op, "targets", targets, ids.str());
  if (tile.start + logits.shape[1] > tile.vocabulary)
    return fail(
        cat(op, ": the tile ends at token ", tile.start + logits.shape[1], " of a vocabulary of ", tile.vocabulary));
  return {};
}

class SoftmaxStats final : public Op {
 public:
  SoftmaxStats(VocabularyTile tile, bool first) : tile_(tile), first_(first) {}
  std::string_view name() const override { return "softmax_stats"; }

  // inputs: logits, targets, [before]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(name(), in[0], in[1], tile_); !ok) return failed(ok);
    const TensorDesc stats{DType::F32, {in[0].shape[0], 3}};
    if (!first_ && in[2] != stats) return bad_argument(name(), "before", in[2], stats.str());
    return std::vector{stats};
  }

  void eval(const CpuCall& call) const override {
    const CpuView& logits = call.in[0];
    const std::size_t v = logits.shape().back();
    call.crew.run(logits.shape().rows(), 1 + 2048 / (v + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t b = begin; b < end; b++) {
        const auto row = logits.row(b), out = call.out[0].row(b);
        double peak = kLowest, sum = 0, target = 0;
        for (const float l : row) peak = std::max<double>(peak, l);
        for (const float l : row) sum += std::exp(l - peak);
        const std::uint64_t t = call.in[1].u32()[b];
        if (t >= tile_.start && t - tile_.start < v) target = row[t - tile_.start];
        if (!first_) {
          const auto before = call.in[2].row(b);
          const double both = std::max<double>(peak, before[0]);
          sum = sum * std::exp(peak - both) + before[1] * std::exp(before[0] - both);
          peak = both;
          target += before[2];
        }
        out[0] = static_cast<float>(peak);
        out[1] = static_cast<float>(sum);
        out[2] = static_cast<float>(target);
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t rows = call.in[0].shape()[0], v = call.in[0].shape()[1];
    if (rows == 0) return {};
    const RowPlan plan = plan_rows(call.caps, rows, v);
    const struct {
      std::uint32_t rows, items, width, start;
    } params{u32(rows), plan.items(v), u32(v), u32(tile_.start)};
    const auto source = [&] { return plan.source("ops/cross_entropy/stats.wgsl").constant("FIRST", first_); };
    // without earlier tiles the logits stand in for `before`
    return call.dispatch(plan.key(first_ ? "softmax_stats" : "softmax_stats_more"), source,
                         {read(call.in[0]), read(call.in[1]), read(call.in[first_ ? 0 : 2]), write(call.out[0])},
                         params, plan.grid(rows));
  }

  // The loss hands its gradient to the logits directly.
  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var>,
                                      const std::vector<bool>&) const override {
    return std::vector<Var>(in.size());
  }

 private:
  VocabularyTile tile_;
  bool first_;
};

// inputs: stats, targets, [logits]. The logits are not read: they are there to receive the gradient.
class Loss final : public Op {
 public:
  explicit Loss(std::uint64_t vocabulary) : vocabulary_(vocabulary) {}
  std::string_view name() const override { return "cross_entropy"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in[0].dtype != DType::F32 || in[0].shape.rank() != 2 || in[0].shape[1] != 3)
      return bad_argument(name(), "stats", in[0], "F32 [B, 3]");
    const TensorDesc ids{DType::U32, {in[0].shape[0]}};
    if (in[1] != ids) return bad_argument(name(), "targets", in[1], ids.str());
    return std::vector{TensorDesc{DType::F32, {in[0].shape[0]}}};
  }

  void eval(const CpuCall& call) const override {
    for (std::size_t b = 0; b < call.out[0].shape()[0]; b++) {
      const auto s = call.in[0].row(b);
      const bool counts = call.in[1].u32()[b] < vocabulary_;
      call.out[0].f32()[b] =
          counts ? static_cast<float>(std::log(static_cast<double>(s[1])) + (static_cast<double>(s[0]) - s[2])) : 0.0f;
    }
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t rows = call.out[0].shape()[0];
    if (rows == 0) return {};
    const struct {
      std::uint32_t rows, vocabulary, pad[2] = {};
    } params{u32(rows), u32(vocabulary_)};
    return call.dispatch(
        "cross_entropy_loss", [] { return gpu::Wgsl("ops/cross_entropy/loss.wgsl"); },
        {read(call.in[0]), read(call.in[1]), write(call.out[0])}, params, gpu::Grid::wrap((rows + 63) / 64));
  }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>& wanted) const override {
    std::vector<Var> din(in.size());
    if (in.size() < 3)
      return fail(ErrorCode::unsupported, "cross_entropy_loss: its gradient is cross_entropy_gradient");
    if (wanted[2]) din[2] = cross_entropy_gradient(in[2], in[0], in[1], dout[0], {0, vocabulary_});
    return din;
  }

 private:
  std::uint64_t vocabulary_;
};

class Gradient final : public Op {
 public:
  Gradient(VocabularyTile tile, bool weighted) : tile_(tile), weighted_(weighted) {}
  std::string_view name() const override { return "cross_entropy_gradient"; }

  // inputs: logits, stats, targets, [weights]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(name(), in[0], in[2], tile_); !ok) return failed(ok);
    const std::uint64_t rows = in[0].shape[0];
    const TensorDesc stats{DType::F32, {rows, 3}}, weights{DType::F32, {rows}};
    if (in[1] != stats) return bad_argument(name(), "stats", in[1], stats.str());
    if (weighted_ && in[3] != weights) return bad_argument(name(), "weights", in[3], weights.str());
    return std::vector{in[0]};
  }

  void eval(const CpuCall& call) const override {
    const CpuView& logits = call.in[0];
    const std::size_t v = logits.shape().back();
    call.crew.run(logits.shape().rows(), 1 + 2048 / (v + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t b = begin; b < end; b++) {
        const auto row = logits.row(b), out = call.out[0].row(b), stats = call.in[1].row(b);
        const std::uint64_t t = call.in[2].u32()[b];
        if (t >= tile_.vocabulary) {
          std::fill(out.begin(), out.end(), 0.0f);
          continue;
        }
        const double weight = weighted_ ? call.in[3].f32()[b] : 1.0;
        for (std::size_t j = 0; j < v; j++) {
          const double p = std::exp(static_cast<double>(row[j]) - stats[0]) / stats[1];
          out[j] = static_cast<float>(weight * (j + tile_.start == t ? p - 1 : p));
        }
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t total = call.in[0].shape().elements();
    if (total == 0) return {};
    const struct {
      std::uint32_t total, width, start, vocabulary;
    } params{u32(total), u32(call.in[0].shape()[1]), u32(tile_.start), u32(tile_.vocabulary)};
    const auto source = [&] { return gpu::Wgsl("ops/cross_entropy/gradient.wgsl").constant("WEIGHTED", weighted_); };
    return call.dispatch(
        weighted_ ? "cross_entropy_gradient_weighted" : "cross_entropy_gradient", source,
        {read(call.in[0]), read(call.in[1]), read(call.in[2]), read(call.in[weighted_ ? 3 : 1]), write(call.out[0])},
        params, gpu::Grid::wrap((total + 255) / 256));
  }

 private:
  VocabularyTile tile_;
  bool weighted_;
};

VocabularyTile whole_unless_given(VocabularyTile tile, Var logits) {
  if (tile.vocabulary == 0) tile.vocabulary = tile.start + logits.shape().back();
  return tile;
}

}  // namespace

Var softmax_stats(Var logits, Var targets, VocabularyTile tile, Var before) {
  if (!logits) return {};
  std::vector<Var> in{logits, targets};
  if (before) in.push_back(before);
  return logits.graph()->add(std::make_unique<SoftmaxStats>(whole_unless_given(tile, logits), !before), in)[0];
}

Var cross_entropy_loss(Var stats, Var targets, std::uint64_t vocabulary) {
  return stats ? stats.graph()->add1(std::make_unique<Loss>(vocabulary), {stats, targets}) : Var{};
}

Var cross_entropy_gradient(Var logits, Var stats, Var targets, Var weights, VocabularyTile tile) {
  if (!logits) return {};
  std::vector<Var> in{logits, stats, targets};
  if (weights) in.push_back(weights);
  return logits.graph()->add(std::make_unique<Gradient>(whole_unless_given(tile, logits), bool(weights)), in)[0];
}

Var cross_entropy(Var logits, Var targets) {
  Var stats = softmax_stats(logits, targets);
  return stats ? stats.graph()->add1(std::make_unique<Loss>(logits.shape().back()), {stats, targets, logits}) : Var{};
}

CrossEntropy cross_entropy_with_gradient(Var logits, Var targets) {
  Var stats = softmax_stats(logits, targets);
  return {cross_entropy_loss(stats, targets, logits.shape().back()), cross_entropy_gradient(logits, stats, targets)};
}

}  // namespace rullama
