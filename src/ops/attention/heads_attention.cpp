#include "ops/attention/heads_attention.h"

#include <vector>

#include "base/text.h"
#include "ops/attention/attention_gpu.h"
#include "ops/heads/heads_op.h"
#include "ops/matmul/product.h"

namespace rullama {
namespace {

using namespace attention_detail;

// inputs: those of heads_to_cache, k and v where they are another layer's, and w where the heads are projected
class HeadsAttention final : public Op {
 public:
  HeadsAttention(const HeadOptions& heads, const AttentionOptions& attention, bool keys, bool factors, bool projected)
      : o_(heads),
        setup_{attention, Mask::causal},
        heads_(heads_op(heads, keys, factors)),
        attention_(attention_op(attention)),
        keys_(keys),
        factors_(factors),
        projected_(projected) {}
  std::string_view name() const override { return "heads_attention"; }
  std::uint32_t writes() const override { return heads_->writes(); }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    auto q = heads_->infer(of_heads(in));
    if (!q) return q;
    auto out = attention_->infer(of_attention(in, (*q)[0]));
    if (!out || !projected_) return out ? q : out;
    const TensorDesc& w = in.back();
    if (auto ok = check_product_weight(name(), "w", w); !ok) return failed(ok);
    const TensorDesc x = as_rows((*q)[0]);
    if (w.shape[1] != x.shape[1]) return bad_argument(name(), "w", w, cat("[n, ", x.shape[1], "]"));
    return std::vector{TensorDesc{DType::F32, {x.shape[0], w.shape[0]}}};
  }

  void eval(const CpuCall& call) const override {
    const TensorDesc q = queries(call.in, call.out), lse{DType::F32, {q.shape[0], q.shape[1]}};
    std::vector<float> q_memory(q.shape.elements()), lse_memory(lse.shape.elements()), attended_memory;
    CpuView attended = call.out[0];
    if (projected_) {
      attended_memory.resize(q.shape.elements());
      attended = {q, reinterpret_cast<std::byte*>(attended_memory.data())};
    }
    const CpuView from{q, reinterpret_cast<std::byte*>(q_memory.data())};
    const CpuView out[] = {attended, {lse, reinterpret_cast<std::byte*>(lse_memory.data())}};
    heads_->eval({of_heads(call.in), {&from, 1}, call.crew, call.precision});
    attention_->eval({of_attention(call.in, from), out, call.crew, call.precision});
    if (!projected_) return;
    const CpuView x{as_rows(q), attended.data}, &w = call.in.back();
    product_on_cpu({ProductKind::forward, 1, 0, w.shape()[0], x, w, nullptr, call.out[0]}, call.crew, call.precision);
  }

  Result<> record(GpuCall& call) const override {
    const TensorDesc desc = queries(call.in, call.out);
    if (call.out[0].shape().elements() == 0) return {};
    const Sizes n(desc.shape, call.in[key_at()].shape());
    auto lse = call.scratch(0, TensorDesc{DType::F32, {n.rows, n.heads}});
    if (!lse) return failed(lse);
    GpuView attended = call.out[0];
    if (projected_) {
      auto made = call.scratch(1, desc);
      if (!made) return failed(made);
      attended = *made;
    }
    bool done = false;
    if (auto ok = record_attention(call, n, attended, *lse, done); !ok || done || !projected_) return ok;
    const GpuView x{as_rows(desc), attended.parts}, in[] = {x, call.in.back()};
    call.free_scratch(2);  // all but what x is
    GpuCall product = call.part(in, call.out, 2);
    return record_product(product, {ProductKind::forward, 1, 0, call.in.back().shape()[0], false});
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    const TensorDesc q = queries(in, out);
    Cost cost = attention_->cost(of_attention(in, q), std::vector{q, {DType::F32, {q.shape[0], q.shape[1]}}});
    if (!projected_) return cost;
    cost.bytes += static_cast<double>(in.back().bytes()) + static_cast<double>(out[0].bytes());
    cost.flops += 2 * static_cast<double>(out[0].shape[0]) * static_cast<double>(in.back().shape.elements());
    return cost;
  }

 private:
  static TensorDesc as_rows(const TensorDesc& q) { return {q.dtype, {q.shape[0], q.shape[1] * q.shape[2]}}; }
  [[nodiscard]] std::size_t key_at() const { return keys_ ? 4 : 3u + factors_; }
  template <class T>
  [[nodiscard]] std::span<const T> of_heads(std::span<const T> in) const {
    return in.first(in.size() - projected_ - (keys_ ? 0 : 2));
  }
  template <class T>
  [[nodiscard]] std::vector<T> of_attention(std::span<const T> in, const T& q) const {
    return {q, in[key_at()], in[key_at() + 1], in[2]};
  }
  static const TensorDesc& desc_of(const TensorDesc& d) { return d; }
  template <class View>
  static const TensorDesc& desc_of(const View& v) {
    return v.desc;
  }
  // [T, n_heads, D]
  template <class T>
  [[nodiscard]] TensorDesc queries(std::span<const T> in, std::span<const T> out) const {
    return {DType::F32, {desc_of(out[0]).shape[0], o_.n_heads, desc_of(in[key_at()]).shape[2]}};
  }

  // `done`: the projection has been recorded too.
  Result<> record_attention(GpuCall& call, const Sizes& n, const GpuView& attended, const GpuView& lse,
                            bool& done) const {
    const GpuView &k = call.in[key_at()], &v = call.in[key_at() + 1];
    const Turn turn(o_.turn);
    if (has_row_kernel(call.caps, n) && call.caps.storage_buffers >= 9 && turn.half() % 4 == 0 && k.parts.size() == 1) {
      const RowHeads heads{.q_norm = call.in[1],
                           .k_norm = call.in[keys_ ? 3 : 1],
                           .factors = factors_ ? &call.in[keys_ ? 6 : 3] : nullptr,
                           .turn = turn,
                           .eps = o_.eps,
                           .own = keys_,
                           .value_norm = o_.value_norm};
      const Forward row{.from = call.in[0],
                        .k = k,
                        .v = v,
                        .ranges = {read(call.in[2]), read(call.in[2])},
                        .out = attended,
                        .lse = lse,
                        .heads = &heads};
      GpuCall attention = call.part(call.in, call.out, 2);
      if (!projected_ || !has_parts_kernel(call, call.in.back())) return record_row(setup_, attention, n, row);
      auto parts = record_row_parts(setup_, attention, n, row);
      if (!parts) return failed(parts);
      if (parts->splits == 0) return record_row(setup_, attention, n, row);
      done = true;
      return record_parts_product(call, {*parts->buffers.sums, *parts->buffers.stats, parts->splits, width(n)},
                                  call.in.back(), call.out[0]);
    }
    auto q = call.scratch(2, attended.desc);
    if (!q) return failed(q);
    GpuCall to_queries = call.part(of_heads(call.in), {&*q, 1}, 3);
    if (auto ok = heads_->record(to_queries); !ok) return ok;
    const auto in = of_attention(call.in, *q);
    const GpuView results[] = {attended, lse};
    GpuCall attend = call.part(in, results, 3);
    return attention_->record(attend);
  }

  HeadOptions o_;
  Setup setup_;
  std::unique_ptr<Op> heads_, attention_;
  bool keys_, factors_, projected_;
};

}  // namespace

Var heads_attention(const HeadInputs& in, const HeadOptions& heads, Var k, Var v, const AttentionOptions& attention,
                    Var w) {
  if (!in.projected) return {};
  std::vector<Var> args = heads_inputs(in);
  const bool keys = bool(in.cache_k);
  if (!keys) args.insert(args.end(), {k, v});
  if (w) args.push_back(w);
  auto op = std::make_unique<HeadsAttention>(heads, attention, keys, bool(in.factors), bool(w));
  return in.projected.graph()->add(std::move(op), args)[0];
}

}  // namespace rullama
