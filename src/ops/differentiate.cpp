#include "ops/differentiate.h"

#include "ops/elementwise/elementwise.h"
#include "ops/op.h"

namespace rullama {

Result<std::vector<Var>> differentiate(Graph& graph, std::span<const Var> outputs, std::span<const Var> douts,
                                       std::span<const Var> wrt) {
  const std::size_t n_tensors = graph.tensors().size(), n_nodes = graph.nodes().size();
  const auto root = [&](TensorId id) { return graph.tensors()[id].root; };

  // Which tensors depend on `wrt`: only their gradients are worth computing.
  std::vector<bool> needed(n_tensors, false);
  for (const Var v : wrt) needed[root(v.id())] = true;
  for (const Node& node : graph.nodes()) {
    bool any = false;
    for (const TensorId id : node.in) any = any || needed[root(id)];
    for (const TensorId id : node.out) needed[id] = needed[id] || any;
  }

  // Gradients are kept at the root's own shape; a reshape passes them on.
  std::vector<Var> gradient(n_tensors);
  const auto accumulate = [&](TensorId id, Var g) {
    const TensorId r = root(id);
    const Shape shape = graph.tensors()[r].desc.shape;
    if (g.shape() != shape) g = graph.reshape(g, shape);
    gradient[r] = gradient[r] ? add(gradient[r], g) : g;
  };
  for (std::size_t i = 0; i < outputs.size(); i++) accumulate(outputs[i].id(), douts[i]);

  for (std::size_t n = n_nodes; n-- > 0;) {
    const std::vector<TensorId> in_ids = graph.nodes()[n].in, out_ids = graph.nodes()[n].out;  // nodes grow below
    std::vector<bool> wanted;
    bool any = false;
    for (const TensorId id : in_ids) {
      wanted.push_back(needed[root(id)]);
      any = any || wanted.back();
    }
    std::vector<Var> in, out, dout;
    bool flows = false;
    for (const TensorId id : out_ids) {
      out.emplace_back(&graph, id);
      dout.push_back(gradient[id]);
      flows = flows || gradient[id];
    }
    if (!any || !flows) continue;
    for (const TensorId id : in_ids) in.emplace_back(&graph, id);
    auto din = graph.nodes()[n].op->derivative(graph, in, out, dout, wanted);
    if (!din) return failed(din);
    for (std::size_t i = 0; i < in_ids.size(); i++)
      if (wanted[i] && (*din)[i]) accumulate(in_ids[i], (*din)[i]);
  }
  if (auto ok = graph.status(); !ok) return failed(ok);
  std::vector<Var> result;
  for (const Var v : wrt) {
    Var g = gradient[root(v.id())];
    if (g && g.shape() != v.shape()) g = graph.reshape(g, v.shape());
    result.push_back(g);
  }
  return result;
}

}  // namespace rullama
