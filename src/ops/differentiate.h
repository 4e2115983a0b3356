// Reverse-mode derivatives of a graph: walks the nodes backwards through Op::derivative and adds nodes that
// compute the gradients. Where a tensor is used several times its gradients are added up.
#pragma once

#include <span>
#include <vector>

#include "ops/graph.h"

namespace rullama {

// Gradients of sum_i <outputs[i], douts[i]> for each of `wrt`; invalid Var where nothing depends on it.
[[nodiscard]] Result<std::vector<Var>> differentiate(Graph& graph, std::span<const Var> outputs,
                                                     std::span<const Var> douts, std::span<const Var> wrt);

}  // namespace rullama
