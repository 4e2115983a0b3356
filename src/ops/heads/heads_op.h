// heads_to_cache for ops that go on from it.
#pragma once

#include <memory>
#include <vector>

#include "ops/heads/heads.h"
#include "ops/op.h"

namespace rullama {

// inputs: projected, q_norm, positions, [k_norm, cache_k, cache_v], [factors]
[[nodiscard]] std::vector<Var> heads_inputs(const HeadInputs& in);
[[nodiscard]] std::unique_ptr<Op> heads_op(const HeadOptions& options, bool keys, bool factors);

}  // namespace rullama
