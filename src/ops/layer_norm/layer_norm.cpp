#include "ops/layer_norm/layer_norm.h"

#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"
#include "ops/reduce/row_plan.h"

namespace rullama {
namespace {

// Rows with mean 0 and variance 1, then a factor and a shift for each column (layer norm) or each row (AdaIN, whose
// gamma counts from 1).
struct Form {
  std::string_view name;
  bool by_row;
};
constexpr Form kLayerNorm{"layer_norm", false}, kAdaIn{"adain", true};

class LayerNorm final : public Op {
 public:
  LayerNorm(const Form& form, float eps, bool affine, bool backward)
      : form_(form), eps_(eps), affine_(affine), backward_(backward) {}
  std::string_view name() const override { return form_.name; }

  // inputs: x, [gamma], [beta or dy]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32) return bad_argument(name(), "x", x, "F32");
    if (!(eps_ > 0)) return fail(cat(name(), ": eps is ", eps_, ", expected more than 0"));
    const TensorDesc affine{DType::F32, {form_.by_row ? x.shape.rows() : x.shape.back()}};
    if (affine_ && in[1] != affine) return bad_argument(name(), "gamma", in[1], affine.str());
    if (affine_ && !backward_ && in[2] != affine) return bad_argument(name(), "beta", in[2], affine.str());
    if (backward_ && in.back() != x) return bad_argument(name(), "dy", in.back(), x.str());
    return std::vector{x};
  }

  void eval(const CpuCall& call) const override {
    const CpuView& x = call.in[0];
    const std::size_t n = x.shape().back();
    const auto width = static_cast<double>(n);
    call.crew.run(x.shape().rows(), 1 + 8192 / (n + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; r++) {
        const auto xr = x.row(r), yr = call.out[0].row(r);
        const auto factor = [&](std::size_t i) {
          if (!affine_) return 1.0;
          return form_.by_row ? 1.0 + call.in[1].f32()[r] : static_cast<double>(call.in[1].f32()[i]);
        };
        double sum = 0, squares = 0;
        for (const float v : xr) sum += v;
        const double mean = sum / width;
        for (const float v : xr) squares += (v - mean) * (v - mean);
        const double inverse = 1 / std::sqrt(squares / width + eps_);
        if (!backward_) {
          for (std::size_t i = 0; i < n; i++) {
            const double shift = affine_ ? call.in[2].f32()[form_.by_row ? r : i] : 0.0;
            yr[i] = static_cast<float>((xr[i] - mean) * inverse * factor(i) + shift);
          }
          continue;
        }
        const auto dr = call.in.back().row(r);
        double mean_g = 0, mean_gh = 0;
        for (std::size_t i = 0; i < n; i++) {
          mean_g += dr[i] * factor(i) / width;
          mean_gh += dr[i] * factor(i) * (xr[i] - mean) * inverse / width;
        }
        for (std::size_t i = 0; i < n; i++) {
          const double h = (xr[i] - mean) * inverse;
          yr[i] = static_cast<float>((dr[i] * factor(i) - mean_g - h * mean_gh) * inverse);
        }
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView& x = call.in[0];
    const std::uint64_t rows = x.shape().rows(), n = x.shape().back();
    if (rows == 0 || n == 0) return {};
    const RowPlan plan = plan_rows(call.caps, rows, n);
    const std::string_view factor = form_.by_row && affine_ ? "f32" : "Item";
    const auto source = [&] {
      return plan.source("ops/layer_norm/layer_norm.wgsl")
          .file(backward_ ? "ops/layer_norm/backward.wgsl" : "ops/layer_norm/forward.wgsl")
          .constant("AFFINE", affine_)
          .constant("BY_ROW", form_.by_row)
          .alias("Factor", factor)
          .alias("LastItem", backward_ ? "Item" : factor);
    };
    const struct {
      std::uint32_t rows, items;
      float width, eps;
    } params{static_cast<std::uint32_t>(rows), plan.items(n), static_cast<float>(n), eps_};
    return call.dispatch(plan.key(cat(name(), affine_ ? "_affine" : "", backward_ ? "_backward" : "")), source,
                         {read(x), read(call.in[affine_ ? 1 : 0]), read(call.in.back()), write(call.out[0])}, params,
                         plan.grid(rows));
  }

  // The affine part is frozen.
  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var> out,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    if (backward_) return Op::derivative(graph, in, out, dout, wanted);
    std::vector<Var> args{in[0]}, din(in.size());
    if (affine_) args.push_back(in[1]);
    args.push_back(dout[0]);
    din[0] = graph.add(std::make_unique<LayerNorm>(form_, eps_, affine_, true), args)[0];
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = static_cast<double>(in[0].shape.elements()) * (backward_ ? 14 : 8);
    return cost;
  }

 private:
  const Form& form_;
  float eps_;
  bool affine_, backward_;
};

Var normalised(const Form& form, Var x, Var gamma, Var beta, float eps) {
  if (!x) return {};
  std::vector<Var> in{x};
  if (gamma || beta) in.insert(in.end(), {gamma, beta});
  return x.graph()->add(std::make_unique<LayerNorm>(form, eps, in.size() == 3, false), in)[0];
}

}  // namespace

Var layer_norm(Var x, Var gamma, Var beta, float eps) { return normalised(kLayerNorm, x, gamma, beta, eps); }
Var adain(Var x, Var gamma, Var beta, float eps) { return normalised(kAdaIn, x, gamma, beta, eps); }

}  // namespace rullama
