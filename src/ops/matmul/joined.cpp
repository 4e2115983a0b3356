// Products of one input with several weights.
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/geglu/geglu.h"
#include "ops/geglu/geglu_forms.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/product.h"
#include "ops/slice/slice.h"

namespace rullama {
namespace {

Result<> check(std::string_view op, std::string_view argument, const TensorDesc& x, const TensorDesc& w) {
  if (auto ok = check_product_weight(op, argument, w); !ok) return ok;
  if (x.dtype != DType::F32 || x.shape.rank() == 0 || x.shape.back() != w.shape[1])
    return bad_argument(op, "x", x, cat("F32 [..., ", w.shape[1], "]"));
  return {};
}

Shape with_columns(Shape shape, std::uint64_t columns) {
  shape[shape.rank() - 1] = columns;
  return shape;
}

double product_flops(const TensorDesc& x, const TensorDesc& w) {
  return 2 * static_cast<double>(x.shape.rows()) * static_cast<double>(w.shape.elements());
}

// inputs: x, w0, w1, ...
class Concat final : public Op {
 public:
  std::string_view name() const override { return "matmul_concat"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in.size() < 2) return fail("matmul_concat: no weights");
    std::uint64_t columns = 0;
    for (std::size_t i = 1; i < in.size(); i++) {
      if (auto ok = check(name(), cat("w", i - 1), in[0], in[i]); !ok) return failed(ok);
      columns += in[i].shape[0];
    }
    return std::vector{TensorDesc{DType::F32, with_columns(in[0].shape, columns)}};
  }

  void eval(const CpuCall& call) const override { concat_on_cpu(call, call.in[0], call.in.subspan(1), call.out[0]); }

  Result<> record(GpuCall& call) const override {
    return record_concat(call, call.in[0], call.in.subspan(1), call.out[0]);
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    Var dx;
    std::uint64_t column = 0;
    for (const Var w : in.subspan(1)) {
      const std::uint64_t n = w.shape()[0];
      Var dy = graph.reshape(columns(dout[0], column, n), with_columns(in[0].shape(), n));
      dx = matmul_transposed(dy, w, {.plus = dx});
      column += n;
    }
    std::vector<Var> din(in.size());
    din[0] = dx;
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    for (const TensorDesc& w : in.subspan(1)) cost.flops += product_flops(in[0], w);
    return cost;
  }
};

// inputs: x, gate, up
class Gated final : public Op {
 public:
  std::string_view name() const override { return "gated_matmul"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(name(), "gate", in[0], in[1]); !ok) return failed(ok);
    if (auto ok = check(name(), "up", in[0], in[2]); !ok) return failed(ok);
    if (in[1].shape != in[2].shape) return bad_argument(name(), "up", in[2], cat(in[1].shape.str(), " like gate"));
    return std::vector{TensorDesc{DType::F32, with_columns(in[0].shape, in[1].shape[0])}};
  }

  void eval(const CpuCall& call) const override { gated_on_cpu(call, call.in[0], call.in.subspan(1), call.out[0]); }

  Result<> record(GpuCall& call) const override {
    return record_gated(call, call.in[0], call.in.subspan(1), call.out[0]);
  }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>&) const override {
    const GegluGradient d = geglu_backward(matmul(in[0], in[1]), matmul(in[0], in[2]), dout[0]);
    std::vector<Var> din(in.size());
    din[0] = matmul_transposed(d.up, in[2], {.plus = matmul_transposed(d.gate, in[1])});
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = product_flops(in[0], in[1]) + product_flops(in[0], in[2]);
    return cost;
  }
};

}  // namespace

void concat_on_cpu(const CpuCall& call, const CpuView& x, std::span<const CpuView> weights, const CpuView& y) {
  std::size_t column = 0;
  for (const CpuView& w : weights) {
    const std::uint64_t n = w.shape()[0];
    product_on_cpu({ProductKind::forward, 1, 0, n, x, w, nullptr, y, column}, call.crew, call.precision);
    column += n;
  }
}

void gated_on_cpu(const CpuCall& call, const CpuView& x, std::span<const CpuView> weights, const CpuView& y) {
  const std::size_t rows = y.shape().rows(), n = y.shape().back();
  call.crew.run(n, 1 + 65536 / (x.shape().back() * rows + 1), [&](std::size_t begin, std::size_t end) {
    Crew alone;
    const auto product = [&](const CpuView& w, const CpuView& to, std::size_t column) {
      product_on_cpu({ProductKind::forward, 1, begin, end, x, w, nullptr, to, column}, alone, call.precision);
    };
    std::vector<float> memory(rows * (end - begin));
    const CpuView up{{DType::F32, {rows, end - begin}}, reinterpret_cast<std::byte*>(memory.data())};
    product(weights[0], y, begin);
    product(weights[1], up, 0);
    for (std::size_t r = 0; r < rows; r++) {
      float* gate = y.row(r).data() + begin;
      geglu_row(gate, up.row(r).data(), end - begin, gate, call.precision);
    }
  });
}

Var matmul_concat(Var x, std::span<const Var> weights) {
  if (!x) return {};
  std::vector<Var> in{x};
  in.insert(in.end(), weights.begin(), weights.end());
  return x.graph()->add(std::make_unique<Concat>(), in)[0];
}

Var gated_matmul(Var x, Var gate, Var up) {
  return x ? x.graph()->add1(std::make_unique<Gated>(), {x, gate, up}) : Var{};
}

}  // namespace rullama
