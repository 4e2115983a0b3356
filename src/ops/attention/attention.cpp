#include "ops/attention/attention.h"

#include <algorithm>

#include "base/text.h"
#include "ops/attention/attention_op.h"

namespace rullama {
namespace {

using namespace attention_detail;

constexpr std::uint64_t kMaxWidth = 512;

// Shared by the four ops, which differ in their tensors and forms.
class AttentionOp : public Op {
 public:
  explicit AttentionOp(const Setup& setup) : setup_(setup) {}

 protected:
  // q, k and optionally v, then the range inputs at `ranges`.
  Result<> check(std::span<const TensorDesc> in, std::size_t tensors, std::size_t ranges) const {
    const TensorDesc &q = in[0], &k = in[1];
    if (q.dtype != DType::F32 || q.shape.rank() != 3) return bad_argument(name(), "q", q, "F32 [rows, heads, width]");
    const std::uint64_t heads = q.shape[1], d = q.shape[2];
    if (d < 1 || d > kMaxWidth) return fail(cat(name(), ": a head width of ", d, ", expected 1 to ", kMaxWidth));
    if (!(setup_.options.scale > 0))
      return fail(cat(name(), ": scale is ", setup_.options.scale, ", expected more than 0"));
    if ((k.dtype != DType::F32 && k.dtype != DType::F16) || k.shape.rank() != 3 || k.shape[2] != d)
      return bad_argument(name(), "k", k, cat("F32 or F16 [positions, heads, ", d, "]"));
    if (k.dtype == DType::F16 && d % 4)
      return bad_argument(name(), "k", k, "a head width that is a multiple of 4 for F16");
    if (k.shape[1] == 0 || heads % k.shape[1])
      return fail(cat(name(), ": ", heads, " query heads cannot share ", k.shape[1], " key/value heads evenly"));
    if (tensors > 2 && in[2] != k) return bad_argument(name(), "v", in[2], k.str());
    if (setup_.mask == Mask::all) return {};
    if (k.shape[0] < 1 && q.shape[0] > 0) return bad_argument(name(), "k", k, "at least one position");
    const TensorDesc rows{DType::U32, {q.shape[0]}}, one{DType::U32, {1}};
    if (in[ranges] != rows) return bad_argument(name(), "positions", in[ranges], rows.str());
    if (setup_.mask == Mask::packed && in[ranges + 1] != rows)
      return bad_argument(name(), "first", in[ranges + 1], rows.str());
    if (setup_.mask == Mask::region && in[ranges + 1] != one)
      return bad_argument(name(), "prompt", in[ranges + 1], one.str());
    return {};
  }

  // `products`: matrix products of [rows, keys] x width that the op does.
  Cost pair_cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out, double products) const {
    Cost cost = Op::cost(in, out);
    const Sizes n(in[0].shape, in[1].shape);
    double pairs = static_cast<double>(n.rows) * n.slots;
    if (setup_.mask != Mask::all && n.rows == n.slots) pairs /= 2;  // a prompt or a training run: half is masked
    if (setup_.options.window) pairs = std::min(pairs, static_cast<double>(n.rows) * setup_.options.window);
    cost.flops = 2.0 * products * pairs * n.heads * n.d;
    return cost;
  }

  Setup setup_;
};

// inputs: q, k, v, stats, dout, ranges; outputs: dk, dv
class AttentionBackwardKv final : public AttentionOp {
 public:
  using AttentionOp::AttentionOp;
  std::string_view name() const override { return "attention_backward_kv"; }
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(in, 3, 5); !ok) return failed(ok);
    if (in[4] != in[0]) return bad_argument(name(), "dout", in[4], in[0].str());
    return std::vector{in[1], in[2]};
  }
  void eval(const CpuCall& call) const override { backward_kv_cpu(setup_, call); }
  Result<> record(GpuCall& call) const override { return backward_kv_gpu(setup_, call); }
  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    return pair_cost(in, out, 4);
  }
};

// inputs: q, k, v, out, lse, dout, ranges; outputs: dq and stats [rows, heads, 2]: lse and sum_t p_t dp_t
class AttentionBackwardQ final : public AttentionOp {
 public:
  using AttentionOp::AttentionOp;
  std::string_view name() const override { return "attention_backward_q"; }
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(in, 3, 6); !ok) return failed(ok);
    if (in[5] != in[0]) return bad_argument(name(), "dout", in[5], in[0].str());
    return std::vector{in[0], TensorDesc{DType::F32, {in[0].shape[0], in[0].shape[1], 2}}};
  }
  void eval(const CpuCall& call) const override { backward_q_cpu(setup_, call); }
  Result<> record(GpuCall& call) const override { return backward_q_gpu(setup_, call); }
  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    return pair_cost(in, out, 3);
  }
};

// inputs: q, k, v, ranges; outputs: out and lse [rows, heads], the logarithm of each row's sum of exponentials
class Attention final : public AttentionOp {
 public:
  using AttentionOp::AttentionOp;
  std::string_view name() const override {
    return setup_.mask == Mask::all      ? "bidirectional_attention"
           : setup_.mask == Mask::region ? "region_attention"
                                         : "attention";
  }
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(in, 3, 3); !ok) return failed(ok);
    return std::vector{in[0], TensorDesc{DType::F32, {in[0].shape[0], in[0].shape[1]}}};
  }
  void eval(const CpuCall& call) const override { forward_cpu(setup_, call); }
  Result<> record(GpuCall& call) const override { return forward_gpu(setup_, call); }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in, std::span<const Var> out,
                                      std::span<const Var> dout, const std::vector<bool>& wanted) const override {
    const TensorDesc& k = in[1].desc();
    if (k.dtype != DType::F32 || (setup_.mask != Mask::all && k.shape[0] != in[0].shape()[0]))
      return fail(cat(name(), ": no derivative where k is ", k.str(), " and q is ", in[0].desc().str(),
                      "; training needs F32 keys of the same rows"));
    std::vector<Var> din(in.size());
    if (!dout[0]) return din;
    const auto ranges = in.subspan(3);
    std::vector<Var> args{in[0], in[1], in[2], out[0], out[1], dout[0]};
    args.insert(args.end(), ranges.begin(), ranges.end());
    const auto first = graph.add(std::make_unique<AttentionBackwardQ>(setup_), args);
    din[0] = first[0];
    if (!wanted[1] && !wanted[2]) return din;
    args = {in[0], in[1], in[2], first[1], dout[0]};
    args.insert(args.end(), ranges.begin(), ranges.end());
    const auto second = graph.add(std::make_unique<AttentionBackwardKv>(setup_), args);
    din[1] = second[0];
    din[2] = second[1];
    return din;
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    return pair_cost(in, out, 2);
  }
};

// inputs: q, k, lse, ranges; output: [rows, heads, slots]
class AttentionProbabilities final : public AttentionOp {
 public:
  using AttentionOp::AttentionOp;
  std::string_view name() const override { return "attention_probabilities"; }
  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (auto ok = check(in, 2, 3); !ok) return failed(ok);
    return std::vector{TensorDesc{DType::F32, {in[0].shape[0], in[0].shape[1], in[1].shape[0]}}};
  }
  void eval(const CpuCall& call) const override { probabilities_cpu(setup_, call); }
  Result<> record(GpuCall& call) const override { return probabilities_gpu(setup_, call); }
  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    return pair_cost(in, out, 1);
  }
};

std::vector<Var> attend(const Setup& setup, Var q, Var k, Var v, Var positions, Var bounds) {
  if (!q) return std::vector<Var>(2);
  std::vector<Var> in{q, k, v};
  if (setup.range_inputs() > 0) in.push_back(positions);
  if (setup.range_inputs() > 1) in.push_back(bounds);
  return q.graph()->add(std::make_unique<Attention>(setup), in);
}

}  // namespace

std::unique_ptr<Op> attention_detail::attention_op(const AttentionOptions& options) {
  return std::make_unique<Attention>(Setup{options, Mask::causal});
}

Var attention(Var q, Var k, Var v, Var positions, const AttentionOptions& options, Var first) {
  return attend({options, first ? Mask::packed : Mask::causal}, q, k, v, positions, first)[0];
}

Var attention_probabilities(Var q, Var k, Var positions, const AttentionOptions& options, Var first) {
  const Setup setup{options, first ? Mask::packed : Mask::causal};
  const Var lse = attend(setup, q, k, k, positions, first)[1];
  if (!lse) return {};
  std::vector<Var> in{q, k, lse, positions};
  if (first) in.push_back(first);
  return q.graph()->add(std::make_unique<AttentionProbabilities>(setup), in)[0];
}

Var bidirectional_attention(Var q, Var k, Var v, const AttentionOptions& options) {
  return attend({options, Mask::all}, q, k, v, {}, {})[0];
}

Var region_attention(Var q, Var k, Var v, Var positions, Var prompt, const AttentionOptions& options) {
  return attend({options, Mask::region}, q, k, v, positions, prompt)[0];
}

}  // namespace rullama
