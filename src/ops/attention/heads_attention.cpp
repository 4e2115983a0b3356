#include "ops/attention/heads_attention.h"

#include <vector>

#include "base/text.h"
#include "ops/attention/attention_gpu.h"
#include "ops/heads/heads_op.h"

namespace rullama {
namespace {

using namespace attention_detail;

// inputs: those of heads_to_cache, and k and v where they are another layer's
class HeadsAttention final : public Op {
 public:
  HeadsAttention(const HeadOptions& heads, const AttentionOptions& attention, bool keys, bool factors)
      : o_(heads),
        setup_{attention, Mask::causal},
        heads_(heads_op(heads, keys, factors)),
        attention_(attention_op(attention)),
        keys_(keys),
        factors_(factors) {}
  std::string_view name() const override { return "heads_attention"; }
  std::uint32_t writes() const override { return heads_->writes(); }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    auto q = heads_->infer(of_heads(in));
    if (!q) return q;
    auto out = attention_->infer(of_attention(in, (*q)[0]));
    if (!out) return out;
    return q;
  }

  void eval(const CpuCall& call) const override {
    const TensorDesc &q = call.out[0].desc, lse{DType::F32, {q.shape[0], q.shape[1]}};
    std::vector<float> q_memory(q.shape.elements()), lse_memory(lse.shape.elements());
    const CpuView queries{q, reinterpret_cast<std::byte*>(q_memory.data())};
    const CpuView out[] = {call.out[0], {lse, reinterpret_cast<std::byte*>(lse_memory.data())}};
    heads_->eval({of_heads(call.in), {&queries, 1}, call.crew, call.precision});
    attention_->eval({of_attention(call.in, queries), out, call.crew, call.precision});
  }

  Result<> record(GpuCall& call) const override {
    const GpuView &out = call.out[0], &k = call.in[key_at()];
    if (out.shape().elements() == 0) return {};
    const Sizes n(out.shape(), k.shape());
    auto lse = call.scratch(2, TensorDesc{DType::F32, {n.rows, n.heads}});
    if (!lse) return failed(lse);
    const Turn turn(o_.turn);
    if (has_row_kernel(call.caps, n) && call.caps.storage_buffers >= 9 && turn.half() % 4 == 0 && k.parts.size() == 1) {
      const RowHeads heads{.q_norm = call.in[1],
                           .k_norm = call.in[keys_ ? 3 : 1],
                           .factors = factors_ ? &call.in[keys_ ? 6 : 3] : nullptr,
                           .turn = turn,
                           .eps = o_.eps,
                           .own = keys_,
                           .value_norm = o_.value_norm};
      return record_row(setup_, call, n,
                        {.from = call.in[0],
                         .k = k,
                         .v = call.in[key_at() + 1],
                         .ranges = {read(call.in[2]), read(call.in[2])},
                         .out = out,
                         .lse = *lse,
                         .heads = &heads});
    }
    auto q = call.scratch(3, out.desc);
    if (!q) return failed(q);
    GpuCall part = call;
    const auto in = of_heads(call.in);
    part.in = in, part.out = {&*q, 1};
    if (auto ok = heads_->record(part); !ok) return ok;
    const auto attended = of_attention(call.in, *q);
    const GpuView results[] = {out, *lse};
    part.in = attended, part.out = results;
    return attention_->record(part);
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    const TensorDesc lse{DType::F32, {out[0].shape[0], out[0].shape[1]}};
    return attention_->cost(of_attention(in, out[0]), std::vector{out[0], lse});
  }

 private:
  [[nodiscard]] std::size_t key_at() const { return keys_ ? 4 : 3u + factors_; }
  template <class T>
  [[nodiscard]] std::span<const T> of_heads(std::span<const T> in) const {
    return keys_ ? in : in.first(in.size() - 2);
  }
  template <class T>
  [[nodiscard]] std::vector<T> of_attention(std::span<const T> in, const T& q) const {
    return {q, in[key_at()], in[key_at() + 1], in[2]};
  }

  HeadOptions o_;
  Setup setup_;
  std::unique_ptr<Op> heads_, attention_;
  bool keys_, factors_;
};

}  // namespace

Var heads_attention(const HeadInputs& in, const HeadOptions& heads, Var k, Var v, const AttentionOptions& attention) {
  if (!in.projected) return {};
  std::vector<Var> args = heads_inputs(in);
  const bool keys = bool(in.cache_k);
  if (!keys) args.insert(args.end(), {k, v});
  auto op = std::make_unique<HeadsAttention>(heads, attention, keys, bool(in.factors));
  return in.projected.graph()->add(std::move(op), args)[0];
}

}  // namespace rullama
