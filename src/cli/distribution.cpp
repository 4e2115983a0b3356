#include "cli/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rullama::cli {

double log_sum_exp(std::span<const float> logits) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += static_cast<double>(std::exp(x - most));
  return most + std::log(sum);
}

std::vector<Token> best(std::span<const float> logits, std::size_t count) {
  count = std::min(count, logits.size());
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), Token{0});
  const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(ids.begin(), middle, ids.end(),
                    [&](Token a, Token b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  ids.resize(count);
  return ids;
}

double divergence(std::span<const float> p, std::span<const float> q) {
  const double p_total = log_sum_exp(p), q_total = log_sum_exp(q);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); i++) {
    const double log_p = p[i] - p_total;
    if (log_p > -80) sum += std::exp(log_p) * (log_p - (q[i] - q_total));  // below, the term is nothing
  }
  return std::max(sum, 0.0);
}

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace rullama::cli
