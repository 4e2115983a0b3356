#include "ops/differentiate.h"

#include "ops/elementwise/elementwise.h"
#include "ops/op.h"

namespace rullama {

namespace {

class Backward {
 public:
  Backward(Graph& graph, std::span<const Var> wrt) : graph_(graph), n_nodes_(graph.nodes().size()) {
    const std::size_t n_tensors = graph.tensors().size();
    needed_.resize(n_tensors, false);
    gradient_.resize(n_tensors);
    again_.resize(n_tensors, kNoTensor);
    for (const Var v : wrt) needed_[root(v.id())] = true;
    for (const Node& node : graph.nodes()) {
      bool any = false;
      for (const TensorId id : node.in) any = any || needed_[root(id)];
      for (const TensorId id : node.out) needed_[id] = needed_[id] || any;
    }
  }

  // Gradients are kept at the root's own shape; a reshape passes them on.
  void accumulate(TensorId id, Var g) {
    const TensorId r = root(id);
    const Shape shape = graph_.tensors()[r].desc.shape;
    if (g.shape() != shape) g = graph_.reshape(g, shape);
    gradient_[r] = gradient_[r] ? add(gradient_[r], g) : g;
  }

  Result<> walk(std::span<const std::size_t> checkpoints) {
    std::vector<std::size_t> cuts{0};
    for (const std::size_t cut : checkpoints)
      if (cut > cuts.back() && cut < n_nodes_) cuts.push_back(cut);
    cuts.push_back(n_nodes_);
    for (std::size_t s = cuts.size() - 1; s-- > 0;) {
      const bool last = s + 2 == cuts.size();
      if (!last && reached(cuts[s], cuts[s + 1])) repeat(cuts[s], cuts[s + 1]);
      for (std::size_t n = cuts[s + 1]; n-- > cuts[s];)
        if (auto ok = step(n); !ok) return ok;
    }
    return {};
  }

  [[nodiscard]] Var gradient(Var of) const {
    const Var g = gradient_[root(of.id())];
    return g && g.shape() != of.shape() ? graph_.reshape(g, of.shape()) : g;
  }

 private:
  [[nodiscard]] TensorId root(TensorId id) const { return graph_.tensors()[id].root; }

  // Whether a gradient flows into any node of a segment.
  [[nodiscard]] bool reached(std::size_t begin, std::size_t end) const {
    for (std::size_t n = begin; n < end; n++)
      for (const TensorId id : graph_.nodes()[n].out)
        if (gradient_[id]) return true;
    return false;
  }

  // Appends the nodes of a segment once more. Its results go under the old tensors' numbers.
  void repeat(std::size_t begin, std::size_t end) {
    for (std::size_t n = begin; n < end; n++) {
      const Node node = graph_.nodes()[n];  // nodes grow below
      if (node.op->writes()) continue;
      std::vector<Var> in;
      for (const TensorId id : node.in) in.push_back(latest(id));
      const auto out = graph_.add(node.op, in);
      for (std::size_t i = 0; i < node.out.size(); i++) again_[node.out[i]] = out[i].id();
    }
  }

  // A tensor of the forward pass, from the second computation if there was one.
  Var latest(TensorId id) {
    const TensorId r = root(id);
    if (r >= again_.size() || again_[r] == kNoTensor) return {&graph_, id};
    return graph_.reshape({&graph_, again_[r]}, graph_.tensors()[id].desc.shape);
  }

  Result<> step(std::size_t n) {
    const Node node = graph_.nodes()[n];  // nodes grow below
    std::vector<bool> wanted;
    bool any = false, flows = false;
    for (const TensorId id : node.in) {
      wanted.push_back(needed_[root(id)]);
      any = any || wanted.back();
    }
    std::vector<Var> in, out, dout;
    for (const TensorId id : node.out) {
      dout.push_back(gradient_[id]);
      flows = flows || gradient_[id];
    }
    if (!any || !flows) return {};
    for (const TensorId id : node.out) out.push_back(latest(id));
    for (const TensorId id : node.in) in.push_back(latest(id));
    auto din = node.op->derivative(graph_, in, out, dout, wanted);
    if (!din) return failed(din);
    for (std::size_t i = 0; i < node.in.size(); i++)
      if (wanted[i] && (*din)[i]) accumulate(node.in[i], (*din)[i]);
    return {};
  }

  Graph& graph_;
  std::size_t n_nodes_;
  std::vector<bool> needed_;  // which tensors depend on `wrt`: only their gradients are worth computing
  std::vector<Var> gradient_;
  std::vector<TensorId> again_;  // by root: the same values, computed once more
};

}  // namespace

Result<std::vector<Var>> differentiate(Graph& graph, std::span<const Var> outputs, std::span<const Var> douts,
                                       std::span<const Var> wrt, std::span<const std::size_t> checkpoints) {
  Backward backward(graph, wrt);
  for (std::size_t i = 0; i < outputs.size(); i++) backward.accumulate(outputs[i].id(), douts[i]);
  if (auto ok = backward.walk(checkpoints); !ok) return failed(ok);
  if (auto ok = graph.status(); !ok) return failed(ok);
  std::vector<Var> result;
  for (const Var v : wrt) result.push_back(backward.gradient(v));
  return result;
}

}  // namespace rullama
