#include "ops/experts/experts.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/experts/expert_product.h"
#include "ops/experts/experts_gpu.h"
#include "ops/geglu/geglu.h"
#include "ops/matmul/matmul.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/slice/slice.h"

namespace rullama {
namespace {

// Weights are softmax over the chosen scores: dividing by their sum cancels all other terms.
class ChooseExperts final : public Op {
 public:
  explicit ChooseExperts(std::uint32_t k) : k_(k) {}
  std::string_view name() const override { return "choose_experts"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& scores = in[0];
    if (scores.dtype != DType::F32 || scores.shape.rank() != 2)
      return bad_argument(name(), "scores", scores, "F32 [T, E]");
    const std::uint64_t experts = scores.shape[1];
    if (experts > kMaxExperts) return bad_argument(name(), "scores", scores, cat("at most ", kMaxExperts, " experts"));
    if (k_ == 0 || k_ > kMaxChosen || k_ > experts)
      return fail(cat(name(), ": ", k_, " of ", experts, " experts, expected 1 to ", std::min(kMaxChosen, experts)));
    return std::vector{TensorDesc{DType::U32, {scores.shape[0], k_}}, TensorDesc{DType::F32, {scores.shape[0], k_}}};
  }

  void eval(const CpuCall& call) const override {
    for (std::size_t t = 0; t < call.in[0].shape()[0]; t++) {
      const auto scores = call.in[0].row(t);
      const auto ids = call.out[0].u32().subspan(t * k_, k_);
      for (std::uint32_t e = 0, n = 0; e < scores.size(); e++) {
        // sorted insertion; of equal scores the earlier one stays ahead
        std::uint32_t at = n;
        while (at > 0 && scores[e] > scores[ids[at - 1]]) at--;
        if (at == k_) continue;
        n = std::min(n + 1, k_);
        for (std::uint32_t i = n - 1; i > at; i--) ids[i] = ids[i - 1];
        ids[at] = e;
      }
      double sum = 0;
      for (const std::uint32_t id : ids) sum += std::exp(static_cast<double>(scores[id]) - scores[ids[0]]);
      for (std::uint32_t s = 0; s < k_; s++)
        call.out[1].row(t)[s] =
            static_cast<float>(std::exp(static_cast<double>(scores[ids[s]]) - scores[ids[0]]) / sum);
    }
  }

  Result<> record(GpuCall& call) const override { return record_choose_experts(call, k_); }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var> out,
                                      std::span<const Var> dout, const std::vector<bool>&) const override;

 private:
  std::uint32_t k_;
};

// dscores of the chosen: w (dw - sum w dw); 0 for the others.
class ChooseExpertsBackward final : public Op {
 public:
  explicit ChooseExpertsBackward(std::uint64_t experts) : experts_(experts) {}
  std::string_view name() const override { return "choose_experts_backward"; }

  // inputs: ids, weights, dweights
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in[2] != in[1]) return bad_argument(name(), "dweights", in[2], in[1].str());
    return std::vector{TensorDesc{DType::F32, {in[1].shape[0], experts_}}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &weights = call.in[1], &dweights = call.in[2], &y = call.out[0];
    const std::size_t k = weights.shape()[1];
    for (std::size_t t = 0; t < weights.shape()[0]; t++) {
      const auto w = weights.row(t), dw = dweights.row(t), row = y.row(t);
      std::fill(row.begin(), row.end(), 0.0f);
      double mean = 0;
      for (std::size_t s = 0; s < k; s++) mean += static_cast<double>(w[s]) * dw[s];
      for (std::size_t s = 0; s < k; s++) row[call.in[0].u32()[t * k + s]] = static_cast<float>(w[s] * (dw[s] - mean));
    }
  }

  Result<> record(GpuCall& call) const override { return record_choose_experts_backward(call); }

 private:
  std::uint64_t experts_;
};

Result<std::vector<Var>> ChooseExperts::derivative(Graph& graph, std::span<const Var> in, std::span<const Var> out,
                                                   std::span<const Var> dout, const std::vector<bool>&) const {
  if (!dout[1]) return std::vector<Var>(1);
  auto op = std::make_unique<ChooseExpertsBackward>(in[0].shape()[1]);
  return std::vector{graph.add1(std::move(op), {out[0], out[1], dout[1]})};
}

// Both directions: they share shapes and the indirection.
class ExpertProduct final : public Op {
 public:
  using Form = ExpertForm;
  // `shared`: x has no slots; only asked backwards, where dx could have either shape.
  explicit ExpertProduct(Form form, bool shared = false) : form_(form), shared_(shared) {}
  std::string_view name() const override {
    return form_ == Form::product ? "expert_matmul"
           : form_ == Form::gated ? "expert_gated_matmul"
                                  : "expert_matmul_transposed";
  }

  // inputs: x or dy, w, ids
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &x = in[0], &w = in[1], &ids = in[2];
    const std::uint32_t block = info(w.dtype).block_elements;
    if (w.dtype == DType::U32 || w.shape.rank() != 3 || w.shape[2] % block != 0)
      return bad_argument(name(), "w", w, cat("[experts, n, k] of a weight type, k a multiple of ", block));
    if (form_ == Form::gated && w.shape[1] % 2)
      return bad_argument(name(), "w", w, "[experts, n, k], n even: a gate and its factor");
    if (ids.dtype != DType::U32 || ids.shape.rank() != 2) return bad_argument(name(), "ids", ids, "U32 [T, slots]");
    const std::uint64_t t = ids.shape[0], slots = ids.shape[1], k = w.shape[2],
                        n = form_ == Form::gated ? w.shape[1] / 2 : w.shape[1];
    const TensorDesc one{DType::F32, {t, k}}, each{DType::F32, {t, slots, k}}, y{DType::F32, {t, slots, n}};
    if (form_ == Form::transposed) {
      if (x != y) return bad_argument(name(), "dy", x, y.str());
      return std::vector{shared_ ? one : each};
    }
    if (x != one && x != each) return bad_argument(name(), "x", x, cat(one.str(), " or ", each.str()));
    return std::vector{y};
  }

  void eval(const CpuCall& call) const override {
    if (form_ == Form::transposed) {
      expert_transposed_cpu(call, shared_);
    } else {
      expert_product_cpu(call, form_ == Form::gated);
    }
  }
  Result<> record(GpuCall& call) const override { return record_expert_product(call, form_); }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    if (wanted[1]) return fail(ErrorCode::unsupported, cat(name(), ": no gradient for w, which is frozen"));
    const bool shared = in[0].shape().rank() == 2;
    if (form_ == Form::transposed) return std::vector{expert_matmul(dout[0], in[1], in[2]), Var{}, Var{}};
    if (form_ == Form::product)
      return std::vector{expert_matmul_transposed(dout[0], in[1], in[2], shared), Var{}, Var{}};
    const Var both = expert_matmul(in[0], in[1], in[2]);
    const std::uint64_t rows = both.shape().rows(), n = both.shape().back() / 2;
    const Shape flat{rows, 2 * n};
    const Var halves = graph.reshape(both, flat);
    const GegluGradient d =
        geglu_backward(columns(halves, 0, n), columns(halves, n, n), graph.reshape(dout[0], {rows, n}));
    const Var dboth = add(spread_columns(d.gate, flat, 0), spread_columns(d.up, flat, n));
    return std::vector{expert_matmul_transposed(graph.reshape(dboth, both.shape()), in[1], in[2], shared), Var{},
                       Var{}};
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    const TensorDesc& w = in[1];
    const auto products = static_cast<double>(in[2].shape.elements()), experts = static_cast<double>(w.shape[0]);
    cost.bytes -= static_cast<double>(w.bytes()) * (1 - std::min(products / std::max(experts, 1.0), 1.0));
    cost.flops = 2 * products * static_cast<double>(w.shape[1] * w.shape[2]);
    return cost;
  }

 private:
  Form form_;
  bool shared_;
};

// Forward: slots, ids, weights, [dscale]. Backward: the same and dy; gives dslots and dweights.
class ExpertCombine final : public Op {
 public:
  ExpertCombine(bool scaled, bool backward) : scaled_(scaled), backward_(backward) {}
  std::string_view name() const override { return backward_ ? "expert_combine_backward" : "expert_combine"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &slots = in[0], &ids = in[1], &weights = in[2];
    if (slots.dtype != DType::F32 || slots.shape.rank() != 3)
      return bad_argument(name(), "slots", slots, "F32 [T, slots, n]");
    const Shape each{slots.shape[0], slots.shape[1]};
    if (ids != TensorDesc{DType::U32, each})
      return bad_argument(name(), "ids", ids, TensorDesc{DType::U32, each}.str());
    if (weights != TensorDesc{DType::F32, each})
      return bad_argument(name(), "weights", weights, TensorDesc{DType::F32, each}.str());
    if (scaled_ && (in[3].dtype != DType::F32 || in[3].shape.rank() != 1))
      return bad_argument(name(), "dscale", in[3], "F32 [experts]");
    const TensorDesc y{DType::F32, {slots.shape[0], slots.shape[2]}};
    if (!backward_) return std::vector{y};
    if (in.back() != y) return bad_argument(name(), "dy", in.back(), y.str());
    return std::vector{slots, weights};
  }

  void eval(const CpuCall& call) const override {
    const CpuView& slots = call.in[0];
    const std::size_t n = slots.shape()[2], k = slots.shape()[1];
    const auto ids = call.in[1].u32();
    const auto weights = call.in[2].f32();
    const auto share = [&](std::size_t pair) -> double {
      if (!scaled_) return 1;
      const auto dscale = call.in[3].f32();
      return ids[pair] < dscale.size() ? dscale[ids[pair]] : 0.0f;
    };
    call.crew.run(slots.shape()[0], 4, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; t++) {
        if (!backward_) {
          for (std::size_t i = 0; i < n; i++) {
            double sum = 0;
            for (std::size_t p = t * k; p < (t + 1) * k; p++) sum += weights[p] * share(p) * slots.row(p)[i];
            call.out[0].row(t)[i] = static_cast<float>(sum);
          }
          continue;
        }
        const auto dy = call.in.back().row(t);
        for (std::size_t p = t * k; p < (t + 1) * k; p++) {
          double sum = 0;
          for (std::size_t i = 0; i < n; i++) {
            sum += static_cast<double>(dy[i]) * slots.row(p)[i];
            call.out[0].row(p)[i] = static_cast<float>(weights[p] * share(p) * dy[i]);
          }
          call.out[1].f32()[p] = static_cast<float>(share(p) * sum);
        }
      }
    });
  }

  Result<> record(GpuCall& call) const override { return record_expert_combine(call, scaled_, backward_); }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    if (backward_) return Op::derivative(graph, in, {}, dout, wanted);
    if (scaled_ && wanted[3])
      return fail(ErrorCode::unsupported, "expert_combine: no gradient for dscale, which is frozen");
    std::vector<Var> arguments(in.begin(), in.end());
    arguments.push_back(dout[0]);
    const auto gradients = graph.add(std::make_unique<ExpertCombine>(scaled_, true), arguments);
    std::vector<Var> din(in.size());
    din[0] = gradients[0];
    din[2] = gradients[1];
    return din;
  }

 private:
  bool scaled_, backward_;
};

}  // namespace

Routed choose_experts(Var scores, std::uint32_t k) {
  if (!scores) return {};
  const auto out = scores.graph()->add(std::make_unique<ChooseExperts>(k), std::span(&scores, 1));
  return {out[0], out[1]};
}

Routed route(Var x, Var router_w, Var scale, float eps, std::uint32_t k) {
  if (!x) return {};
  const float root = std::sqrt(static_cast<float>(x.shape().back()));
  return choose_experts(matmul(rms_norm(x, scale, eps), router_w, {.scale = 1 / root}), k);
}

Var expert_matmul(Var x, Var w, Var ids) {
  return x ? x.graph()->add1(std::make_unique<ExpertProduct>(ExpertForm::product), {x, w, ids}) : Var{};
}
Var expert_gated_matmul(Var x, Var w, Var ids) {
  return x ? x.graph()->add1(std::make_unique<ExpertProduct>(ExpertForm::gated), {x, w, ids}) : Var{};
}
Var expert_matmul_transposed(Var dy, Var w, Var ids, bool shared) {
  return dy ? dy.graph()->add1(std::make_unique<ExpertProduct>(ExpertForm::transposed, shared), {dy, w, ids}) : Var{};
}
Var expert_combine(Var slots, Var ids, Var weights, Var dscale) {
  if (!slots) return {};
  auto op = std::make_unique<ExpertCombine>(bool(dscale), false);
  return dscale ? slots.graph()->add1(std::move(op), {slots, ids, weights, dscale})
                : slots.graph()->add1(std::move(op), {slots, ids, weights});
}

}  // namespace rullama
