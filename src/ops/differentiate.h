// Reverse-mode derivatives of a graph: walks the nodes backwards through Op::derivative and adds nodes that
// compute the gradients. Where a tensor is used several times its gradients are added up.
#pragma once

#include <span>
#include <vector>

#include "ops/graph.h"

namespace rullama {

// Gradients of sum_i <outputs[i], douts[i]> for each of `wrt`; invalid Var where nothing depends on it.
//
// `checkpoints`, numbers of nodes in ascending order, cut the graph into segments. What a segment computes for itself
// is not kept for the backward walk but computed once more when the walk arrives there; only what crosses a cut stays
// in memory. The last segment is kept as it is. Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory
// Cost".
[[nodiscard]] Result<std::vector<Var>> differentiate(Graph& graph, std::span<const Var> outputs,
                                                     std::span<const Var> douts, std::span<const Var> wrt,
                                                     std::span<const std::size_t> checkpoints = {});

}  // namespace rullama
