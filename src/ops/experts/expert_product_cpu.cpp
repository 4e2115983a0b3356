#include <algorithm>
#include <vector>

#include "ops/experts/expert_product.h"

namespace rullama {
namespace {

// Pairs (token, slot) by the expert they chose, so that each expert's rows are decoded once.
std::vector<std::vector<std::uint32_t>> pairs_by_expert(const CpuView& ids, std::uint64_t experts) {
  std::vector<std::vector<std::uint32_t>> pairs(experts);
  const auto all = ids.u32();
  for (std::uint32_t p = 0; p < all.size(); p++)
    if (all[p] < experts) pairs[all[p]].push_back(p);
  return pairs;
}

}  // namespace

void expert_product_cpu(const CpuCall& call) {
  const CpuView &x = call.in[0], &w = call.in[1], &ids = call.in[2], &y = call.out[0];
  const std::uint64_t n = w.shape()[1], k = w.shape()[2], slots = ids.shape()[1];
  const std::uint64_t share = x.shape().rank() == 2 ? slots : 1;  // pairs that read one row of x
  const auto by_expert = pairs_by_expert(ids, w.shape()[0]);
  std::fill(y.f32().begin(), y.f32().end(), 0.0f);
  call.crew.run(n, 1, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(k);
    for (std::size_t e = 0; e < by_expert.size(); e++) {
      if (by_expert[e].empty()) continue;
      for (std::size_t j = begin; j < end; j++) {
        w.decode_row(e * n + j, row);
        for (const std::uint32_t p : by_expert[e]) {
          const auto xr = x.row(p / share);
          double sum = 0;
          for (std::size_t i = 0; i < k; i++) sum += static_cast<double>(xr[i]) * row[i];
          y.row(p)[j] = static_cast<float>(sum);
        }
      }
    }
  });
}

void expert_transposed_cpu(const CpuCall& call, bool shared) {
  const CpuView &dy = call.in[0], &w = call.in[1], &ids = call.in[2], &dx = call.out[0];
  const std::uint64_t n = w.shape()[1], k = w.shape()[2], slots = ids.shape()[1], share = shared ? slots : 1;
  const auto all = ids.u32();
  call.crew.run(dx.shape().rows(), 1, [&](std::size_t begin, std::size_t end) {
    std::vector<float> row(k);
    std::vector<double> sums(k);
    for (std::size_t m = begin; m < end; m++) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (std::size_t p = m * share; p < (m + 1) * share; p++) {
        if (all[p] >= w.shape()[0]) continue;
        for (std::size_t j = 0; j < n; j++) {
          w.decode_row(all[p] * n + j, row);
          const double a = dy.row(p)[j];
          for (std::size_t i = 0; i < k; i++) sums[i] += a * row[i];
        }
      }
      std::copy(sums.begin(), sums.end(), dx.row(m).begin());
    }
  });
}

}  // namespace rullama
