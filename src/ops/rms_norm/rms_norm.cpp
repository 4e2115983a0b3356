#include "ops/rms_norm/rms_norm.h"

#include <cmath>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_call.h"
#include "ops/reduce/row_plan.h"
#include "ops/rms_norm/residual_norm_forms.h"

namespace rullama {
namespace {

struct RowParams {
  std::uint32_t rows, items;
  float width, eps;
};

// Sums in double, in eight chains so that the compiler may use vector registers.
double squares_of(const float* x, std::size_t n) {
  double sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t j = 0; j < 8; j++) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
  double sum = 0;
  for (; i < n; i++) sum += static_cast<double>(x[i]) * x[i];
  for (const double s : sums) sum += s;
  return sum;
}

void normalise(const float* x, const float* w, float inverse, std::size_t n, float* y) {
  for (std::size_t i = 0; i < n; i++) y[i] = x[i] * inverse * (w ? w[i] : 1.0f);
}

// Both directions: they share shapes, the row loop and the kernel's reduction.
class RmsNorm final : public Op {
 public:
  RmsNorm(float eps, bool weighted, bool backward) : eps_(eps), weighted_(weighted), backward_(backward) {}

  std::string_view name() const override { return backward_ ? "rms_norm_backward" : "rms_norm"; }

  // inputs: x, [w], [dy]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32) return bad_argument(name(), "x", x, "F32");
    if (!(eps_ > 0)) return fail(cat(name(), ": eps is ", eps_, ", expected more than 0"));
    if (weighted_ && in[1] != TensorDesc{DType::F32, {x.shape.back()}})
      return bad_argument(name(), "w", in[1], cat("F32 [", x.shape.back(), "]"));
    if (backward_ && in.back() != x) return bad_argument(name(), "dy", in.back(), x.str());
    return std::vector{x};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &x = call.in[0], &dy = call.in.back(), &y = call.out[0];
    const std::size_t n = x.shape().back();
    const float* w = weighted_ ? call.in[1].f32().data() : nullptr;
    const bool fast = call.precision != Precision::reference && !backward_;
    call.crew.run(x.shape().rows(), 1 + 16384 / (n + 1), [&](std::size_t begin, std::size_t end) {
      for (std::size_t r = begin; r < end; r++) {
        const auto xr = x.row(r), yr = y.row(r);
        const double root = std::sqrt(squares_of(xr.data(), n) / static_cast<double>(n) + eps_);
        if (fast) {
          normalise(xr.data(), w, static_cast<float>(1 / root), n, yr.data());
          continue;
        }
        if (!backward_) {
          for (std::size_t i = 0; i < n; i++) yr[i] = static_cast<float>(xr[i] / root * (w ? w[i] : 1.0));
          continue;
        }
        const auto dr = dy.row(r);
        double s = 0;
        for (std::size_t i = 0; i < n; i++) s += static_cast<double>(dr[i]) * (w ? w[i] : 1.0) * xr[i];
        const double f = s / (static_cast<double>(n) * root * root * root);
        for (std::size_t i = 0; i < n; i++) yr[i] = static_cast<float>((w ? w[i] : 1.0) * dr[i] / root - xr[i] * f);
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView& x = call.in[0];
    const std::uint64_t rows = x.shape().rows(), n = x.shape().back();
    if (rows == 0 || n == 0) return {};
    const RowPlan plan = plan_rows(call.caps, rows, n);
    const auto source = [&] {
      return plan.source("ops/rms_norm/rms_norm.wgsl").constant("WEIGHTED", weighted_).constant("BACKWARD", backward_);
    };
    const GpuView& w = weighted_ ? call.in[1] : x;  // x stands in for an absent weight
    return call.dispatch(plan.key(cat(name(), weighted_ ? "_w" : "")), source,
                         {read(x), read(w), read(call.in.back()), write(call.out[0])},
                         RowParams{static_cast<std::uint32_t>(rows), plan.items(n), static_cast<float>(n), eps_},
                         plan.grid(rows));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    if (backward_) return Op::derivative(graph, in, {}, dout, {});
    std::vector<Var> din(in.size());
    din[0] = rms_norm_backward(in[0], weighted_ ? in[1] : Var{}, dout[0], eps_);
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = static_cast<double>(in[0].shape.elements()) * (backward_ ? 8 : 4);
    return cost;
  }

 private:
  float eps_;
  bool weighted_, backward_;
};

class ResidualNormOp final : public Op {
 public:
  ResidualNormOp(float eps, bool scaled) : eps_(eps), scaled_(scaled) {}
  std::string_view name() const override { return "residual_norm"; }

  // inputs: residual, x, w, w_next, [scale]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    static constexpr std::string_view names[] = {"residual", "x", "w", "w_next", "scale"};
    const TensorDesc row{DType::F32, {in[0].shape.back()}}, one{DType::F32, {1}};
    if (in[0].dtype != DType::F32) return bad_argument(name(), names[0], in[0], "F32");
    if (!(eps_ > 0)) return fail(cat(name(), ": eps is ", eps_, ", expected more than 0"));
    for (std::size_t i = 1; i < in.size(); i++) {
      const TensorDesc& expected = i == 1 ? in[0] : i == 4 ? one : row;
      if (in[i] != expected) return bad_argument(name(), names[i], in[i], expected.str());
    }
    return std::vector{in[0], in[0]};
  }

  void eval(const CpuCall& call) const override { residual_norm_on_cpu(call, views(call.in, call.out), eps_); }
  Result<> record(GpuCall& call) const override { return record_residual_norm(call, views(call.in, call.out), eps_); }

  // Weights and scale are frozen.
  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var> out,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    Var d = dout[0];
    if (dout[1]) {
      const Var through = rms_norm_backward(out[0], in[3], dout[1], eps_);
      d = d ? add(d, through) : through;
    }
    if (scaled_) d = scale_by(d, in[4]);
    std::vector<Var> din(in.size());
    din[0] = d;
    if (wanted[1]) din[1] = rms_norm_backward(in[1], in[2], d, eps_);
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = static_cast<double>(in[0].shape.elements()) * 10;
    return cost;
  }

 private:
  template <class View>
  [[nodiscard]] ResidualNormViews<View> views(std::span<const View> in, std::span<const View> out) const {
    return {in[0], in[1], in[2], &in[3], scaled_ ? &in[4] : nullptr, out[0], out[1]};
  }

  float eps_;
  bool scaled_;
};

}  // namespace

Var rms_norm(Var x, Var w, float eps) {
  auto op = std::make_unique<RmsNorm>(eps, bool(w), false);
  if (!x) return {};
  return w ? x.graph()->add1(std::move(op), {x, w}) : x.graph()->add1(std::move(op), {x});
}

Var rms_norm_backward(Var x, Var w, Var dy, float eps) {
  auto op = std::make_unique<RmsNorm>(eps, bool(w), true);
  if (!x) return {};
  return w ? x.graph()->add1(std::move(op), {x, w, dy}) : x.graph()->add1(std::move(op), {x, dy});
}

ResidualNorm residual_norm(Var residual, Var x, Var w, Var w_next, float eps, Var scale) {
  if (!residual) return {};
  std::vector<Var> in{residual, x, w, w_next};
  if (scale) in.push_back(scale);
  const auto out = residual.graph()->add(std::make_unique<ResidualNormOp>(eps, bool(scale)), in);
  return {out[0], out[1]};
}

void residual_norm_on_cpu(const CpuCall& call, const ResidualNormViews<CpuView>& v, float eps) {
  const std::size_t n = v.x.shape().back();
  const float* w = v.w.f32().data();
  const float scale = v.scale ? v.scale->f32()[0] : 1.0f;
  const auto inverse = [&](const float* row) {
    return static_cast<float>(1 / std::sqrt(squares_of(row, n) / static_cast<double>(n) + eps));
  };
  call.crew.run(v.x.shape().rows(), 1 + 8192 / (n + 1), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; r++) {
      const float *rr = v.residual.row(r).data(), *xr = v.x.row(r).data();
      float* sr = v.sum.row(r).data();
      if (call.precision == Precision::reference) {
        const double root = std::sqrt(squares_of(xr, n) / static_cast<double>(n) + eps);
        for (std::size_t i = 0; i < n; i++)
          sr[i] = static_cast<float>((rr[i] + static_cast<double>(xr[i]) / root * w[i]) * scale);
      } else {
        const float first = inverse(xr);
        for (std::size_t i = 0; i < n; i++) sr[i] = (rr[i] + xr[i] * first * w[i]) * scale;
      }
      if (v.w_next) normalise(sr, v.w_next->f32().data(), inverse(sr), n, v.normed.row(r).data());
    }
  });
}

Result<> record_residual_norm(GpuCall& call, const ResidualNormViews<GpuView>& v, float eps) {
  const std::uint64_t rows = v.x.shape().rows(), n = v.x.shape().back();
  if (rows == 0 || n == 0) return {};
  const RowPlan plan = plan_rows(call.caps, rows, n);
  const auto source = [&] {
    return plan.source("ops/rms_norm/residual_norm.wgsl")
        .constant("SCALED", v.scale != nullptr)
        .constant("NEXT", v.w_next != nullptr);
  };
  // w stands in for what is absent
  const GpuView &scale = v.scale ? *v.scale : v.w, &w_next = v.w_next ? *v.w_next : v.w;
  return call.dispatch(
      plan.key(cat("residual_norm", v.scale ? "_scaled" : "", v.w_next ? "" : "_sum")), source,
      {read(v.residual), read(v.x), read(v.w), read(w_next), read(scale), write(v.sum), write(v.normed)},
      RowParams{static_cast<std::uint32_t>(rows), plan.items(n), static_cast<float>(n), eps}, plan.grid(rows));
}

}  // namespace rullama
