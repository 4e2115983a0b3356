// A step of the residual stream and a product with what it gives.
#include <algorithm>
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/geglu/geglu_forms.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product.h"
#include "ops/matmul/product_kernels.h"
#include "ops/rms_norm/residual_norm_forms.h"

namespace rullama {
namespace {

using Kind = ResidualProductKind;

class ResidualProductOp final : public Op {
 public:
  ResidualProductOp(Kind kind, float eps, bool next, bool scaled, std::uint32_t column)
      : kind_(kind), eps_(eps), next_(next), scaled_(scaled), column_(column) {}
  std::string_view name() const override {
    return kind_ == Kind::concat ? "residual_concat" : kind_ == Kind::gated ? "residual_gated" : "residual_gelu";
  }

  // inputs: residual, x, w, [w_next], [scale], weights, [factor]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32 || x.shape.rank() != 2) return bad_argument(name(), "residual", x, "F32 [rows, k]");
    if (!(eps_ > 0)) return fail(cat(name(), ": eps is ", eps_, ", expected more than 0"));
    const std::uint64_t k = x.shape[1];
    const TensorDesc row{DType::F32, {k}}, one{DType::F32, {1}};
    if (in[1] != x) return bad_argument(name(), "x", in[1], x.str());
    if (in[2] != row) return bad_argument(name(), "w", in[2], row.str());
    if (next_ && in[3] != row) return bad_argument(name(), "w_next", in[3], row.str());
    if (scaled_ && in[3 + next_] != one) return bad_argument(name(), "scale", in[3 + next_], one.str());
    const auto all = weights(in);
    if (all.empty()) return fail(cat(name(), ": no weights"));
    std::uint64_t columns = 0;
    for (std::size_t i = 0; i < all.size(); i++) {
      if (auto ok = check_product_weight(name(), cat("w", i), all[i]); !ok) return failed(ok);
      if (all[i].shape[1] != k) return bad_argument(name(), cat("w", i), all[i], cat("[n, ", k, "]"));
      columns += all[i].shape[0];
    }
    if (kind_ == Kind::gated) {
      if (all[0].shape != all[1].shape)
        return bad_argument(name(), "up", all[1], cat(all[0].shape.str(), " like gate"));
      columns /= 2;
    }
    if (kind_ == Kind::gelu) {
      const TensorDesc& f = in.back();
      if (f.dtype != DType::F32 || f.shape.rank() != 2 || f.shape[0] != x.shape[0] || f.shape[1] < column_ + columns)
        return bad_argument(name(), "factor", f, cat("F32 [", x.shape[0], ", ", column_ + columns, " or more]"));
    }
    return std::vector{x, TensorDesc{DType::F32, {x.shape[0], columns}}};
  }

  void eval(const CpuCall& call) const override {
    std::vector<float> normed_memory(next_ ? call.out[0].shape().elements() : 0);
    const CpuView normed{call.out[0].desc, reinterpret_cast<std::byte*>(normed_memory.data())};
    residual_norm_on_cpu(call, step(call.in, call.out[0], normed), eps_);
    const CpuView &x = next_ ? normed : call.out[0], &y = call.out[1];
    const auto all = weights(call.in);
    if (kind_ == Kind::gated) return gated_on_cpu(call, x, all, y);
    concat_on_cpu(call, x, all, y);
    if (kind_ == Kind::concat) return;
    for (std::size_t r = 0; r < y.shape().rows(); r++) {
      float* gate = y.row(r).data();
      geglu_row(gate, call.in.back().row(r).data() + column_, y.shape().back(), gate, call.precision);
    }
  }

  Result<> record(GpuCall& call) const override {
    const GpuView &sum = call.out[0], &y = call.out[1];
    if (y.shape().elements() == 0) return {};
    const auto all = weights(call.in);
    const GpuView* factor = kind_ == Kind::gelu ? &call.in.back() : nullptr;
    const auto views = step(call.in, sum, sum);
    const ResidualBuffers fused{views.residual, views.x, views.w, views.w_next, views.scale, sum};
    const ResidualProductGpu product{kind_, fused, eps_, all, factor, column_, y};
    if (has_residual_kernel(call, product)) return record_residual_product(call, product);
    // scratch memory up to 2 belongs to the products
    auto normed = call.scratch(3, sum.desc);
    if (!normed) return failed(normed);
    if (auto ok = record_residual_norm(call, step(call.in, sum, *normed), eps_); !ok) return ok;
    const GpuView& x = next_ ? *normed : sum;
    if (kind_ == Kind::concat) return record_concat(call, x, all, y);
    if (kind_ == Kind::gated) return record_gated(call, x, all, y);
    auto gate = call.scratch(4, y.desc);
    if (!gate) return failed(gate);
    if (auto ok = record_concat(call, x, all, *gate); !ok) return ok;
    return record_geglu(call, *gate, *factor, column_, y);
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    for (const TensorDesc& w : weights(in))
      cost.flops += 2 * static_cast<double>(in[0].shape[0]) * static_cast<double>(w.shape.elements());
    return cost;
  }

 private:
  template <class T>
  [[nodiscard]] std::span<const T> weights(std::span<const T> in) const {
    const std::size_t before = 3u + next_ + scaled_, after = kind_ == Kind::gelu;
    return in.subspan(before, in.size() - before - after);
  }
  template <class View>
  [[nodiscard]] ResidualNormViews<View> step(std::span<const View> in, const View& sum, const View& normed) const {
    return {in[0], in[1], in[2], next_ ? &in[3] : nullptr, scaled_ ? &in[3 + next_] : nullptr, sum, normed};
  }

  Kind kind_;
  float eps_;
  bool next_, scaled_;
  std::uint32_t column_;
};

ResidualProduct product(Kind kind, const ResidualStep& step, std::span<const Var> weights, Var factor = {},
                        std::uint32_t column = 0) {
  if (!step.residual) return {};
  std::vector<Var> in{step.residual, step.x, step.w};
  if (step.w_next) in.push_back(step.w_next);
  if (step.scale) in.push_back(step.scale);
  in.insert(in.end(), weights.begin(), weights.end());
  if (kind == Kind::gelu) in.push_back(factor);
  auto op = std::make_unique<ResidualProductOp>(kind, step.eps, bool(step.w_next), bool(step.scale), column);
  const auto out = step.residual.graph()->add(std::move(op), in);
  return {out[0], out[1]};
}

}  // namespace

ResidualProduct residual_concat(const ResidualStep& step, std::span<const Var> weights) {
  return product(Kind::concat, step, weights);
}
ResidualProduct residual_gated(const ResidualStep& step, Var gate, Var up) {
  return product(Kind::gated, step, std::vector{gate, up});
}
ResidualProduct residual_gelu(const ResidualStep& step, Var weight, Var factor, std::uint32_t column) {
  return product(Kind::gelu, step, std::vector{weight}, factor, column);
}

}  // namespace rullama
