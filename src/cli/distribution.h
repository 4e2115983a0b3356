// Next-token distributions: log-probabilities and how far two of them are apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rullama/sampling.h"

namespace rullama::cli {

// log(sum(exp(logits))), so that a token's log-probability is its logit less this.
[[nodiscard]] double log_sum_exp(std::span<const float> logits);

// The `count` best, best first, the lower id of equals first.
[[nodiscard]] std::vector<Token> best(std::span<const float> logits, std::size_t count);

// Kullback-Leibler divergence of q from p in nats: what is lost by taking q for p.
[[nodiscard]] double divergence(std::span<const float> p_logits, std::span<const float> q_logits);

// The value that `share` of the values do not exceed (nearest rank); 0 of none.
[[nodiscard]] double quantile(std::vector<double> values, double share);

}  // namespace rullama::cli
