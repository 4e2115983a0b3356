#include "ops/matmul/matmul.h"

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/matmul/product.h"

namespace rullama {

Result<> check_product_weight(std::string_view op, std::string_view argument, const TensorDesc& w) {
  const std::uint32_t block = info(w.dtype).block_elements;
  if (w.dtype == DType::U32)
    return bad_argument(op, argument, w, "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K");
  if (w.shape.rank() != 2) return bad_argument(op, argument, w, "two dimensions");
  if (w.shape[1] % block != 0) return bad_argument(op, argument, w, cat("rows of a multiple of ", block, " elements"));
  return {};
}

namespace {

// The three products. They close under derivatives: each one's gradients are the other two.
class Product final : public Op {
 public:
  Product(ProductKind kind, const ProductOptions& options)
      : kind_(kind), scale_(options.scale), added_(bool(options.plus)), row0_(options.row0), row1_(options.row1) {}

  std::string_view name() const override {
    switch (kind_) {
      case ProductKind::forward: return "matmul";
      case ProductKind::transposed: return "matmul_transposed";
      default: return "outer_sum";
    }
  }

  // inputs: x, w, [plus]
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &x = in[0], &w = in[1];
    const bool outer = kind_ == ProductKind::outer;
    if (x.dtype != DType::F32 || x.shape.rank() == 0) return bad_argument(name(), outer ? "a" : "x", x, "F32 rows");
    if (auto ok = outer ? check_outer(x, w) : check_weight(x, w); !ok) return failed(ok);
    Shape shape = x.shape;
    if (outer) {
      shape = {x.shape.back(), w.shape.back()};
    } else {
      shape[shape.rank() - 1] = kind_ == ProductKind::forward ? row1_ - row0_ : w.shape[1];
    }
    const TensorDesc y{DType::F32, shape};
    if (added_ && in[2] != y) return bad_argument(name(), "plus", in[2], y.str());
    return std::vector{y};
  }

  void eval(const CpuCall& call) const override {
    ProductCpu product{kind_,      scale_, row0_, row1_, call.in[0], call.in[1], added_ ? &call.in[2] : nullptr,
                       call.out[0]};
    product_on_cpu(product, call.crew, call.precision);
  }

  Result<> record(GpuCall& call) const override { return record_product(call, {kind_, scale_, row0_, row1_, added_}); }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>& wanted) const override {
    const Var x = in[0], w = in[1], dy = dout[0];
    const ProductOptions options{.scale = scale_, .row0 = row0_, .row1 = row1_};
    const ProductOptions whole{.scale = scale_};
    std::vector<Var> din(in.size());
    if (wanted[1] && kind_ != ProductKind::outer && (row0_ != 0 || row1_ != w.shape()[0]))
      return fail(ErrorCode::unsupported, cat(name(), ": no gradient for w where only some of its rows are used"));
    switch (kind_) {
      case ProductKind::forward:
        if (wanted[0]) din[0] = matmul_transposed(dy, w, options);
        if (wanted[1]) din[1] = outer_sum(dy, x, whole);
        break;
      case ProductKind::transposed:
        if (wanted[0]) din[0] = matmul(dy, w, options);
        if (wanted[1]) din[1] = outer_sum(x, dy, whole);
        break;
      case ProductKind::outer:
        if (wanted[0]) din[0] = matmul(w, dy, whole);
        if (wanted[1]) din[1] = matmul_transposed(x, dy, whole);
        break;
    }
    if (added_) din[2] = dy;
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    const auto rows = static_cast<double>(in[0].shape.rows()), columns = static_cast<double>(in[1].shape.back());
    if (kind_ == ProductKind::outer) {
      cost.flops = 2 * rows * static_cast<double>(in[0].shape.back()) * columns;
    } else {
      const auto used = static_cast<double>(row1_ - row0_), all = static_cast<double>(in[1].shape[0]);
      if (all > 0) cost.bytes -= static_cast<double>(in[1].bytes()) * (1 - used / all);
      cost.flops = 2 * rows * used * columns;
    }
    return cost;
  }

 private:
  Result<> check_weight(const TensorDesc& x, const TensorDesc& w) const {
    if (auto ok = check_product_weight(name(), "w", w); !ok) return ok;
    if (row0_ > row1_ || row1_ > w.shape[0])
      return fail(cat(name(), ": rows ", row0_, " to ", row1_, " do not lie in w, which is ", w.str()));
    const std::uint64_t expected = kind_ == ProductKind::forward ? w.shape[1] : row1_ - row0_;
    if (x.shape.back() != expected) return bad_argument(name(), "x", x, cat("F32 [..., ", expected, "]"));
    return {};
  }
  Result<> check_outer(const TensorDesc& a, const TensorDesc& b) const {
    if (b.dtype != DType::F32 || b.shape.rank() == 0 || b.shape.rows() != a.shape.rows())
      return bad_argument(name(), "b", b, cat("F32 with ", a.shape.rows(), " rows"));
    return {};
  }

  ProductKind kind_;
  float scale_;
  bool added_;
  std::uint64_t row0_, row1_;
};

Var product(ProductKind kind, Var x, Var w, ProductOptions options) {
  if (!x) return {};
  if (options.row1 == ProductOptions::kAllRows) options.row1 = w ? w.shape()[0] : 0;
  auto op = std::make_unique<Product>(kind, options);
  return options.plus ? x.graph()->add1(std::move(op), {x, w, options.plus}) : x.graph()->add1(std::move(op), {x, w});
}

}  // namespace

Var matmul(Var x, Var w, const ProductOptions& options) { return product(ProductKind::forward, x, w, options); }
Var matmul_transposed(Var dy, Var w, const ProductOptions& options) {
  return product(ProductKind::transposed, dy, w, options);
}
Var outer_sum(Var a, Var b, const ProductOptions& options) { return product(ProductKind::outer, a, b, options); }

}  // namespace rullama
