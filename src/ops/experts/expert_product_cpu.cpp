#include <algorithm>
#include <vector>

#include "ops/experts/expert_product.h"
#include "ops/geglu/geglu_forms.h"
#include "ops/matmul/product.h"

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

void expert_product_cpu(const CpuCall& call, bool gated) {
  const CpuView &x = call.in[0], &w = call.in[1], &ids = call.in[2], &y = call.out[0];
  const std::uint64_t n = w.shape()[1], k = w.shape()[2], slots = ids.shape()[1];
  const std::uint64_t share = x.shape().rank() == 2 ? slots : 1;  // pairs that read one row of x
  const auto by_expert = pairs_by_expert(ids, w.shape()[0]);
  std::fill(y.f32().begin(), y.f32().end(), 0.0f);
  std::vector<float> rows, products;
  for (std::size_t e = 0; e < by_expert.size(); e++) {
    const auto& pairs = by_expert[e];
    if (pairs.empty()) continue;
    rows.resize(pairs.size() * k);
    products.resize(pairs.size() * n);
    for (std::size_t i = 0; i < pairs.size(); i++) std::ranges::copy(x.row(pairs[i] / share), rows.begin() + i * k);
    const CpuView xe{{DType::F32, {pairs.size(), k}}, reinterpret_cast<std::byte*>(rows.data())};
    const CpuView we{{w.desc.dtype, {n, k}}, w.data + e * n * row_bytes(w.desc.dtype, k)};
    const CpuView ye{{DType::F32, {pairs.size(), n}}, reinterpret_cast<std::byte*>(products.data())};
    product_on_cpu({ProductKind::forward, 1, 0, n, xe, we, nullptr, ye}, call.crew, call.precision);
    for (std::size_t i = 0; i < pairs.size(); i++) {
      const auto from = ye.row(i), to = y.row(pairs[i]);
      if (gated)
        geglu_row(from.data(), from.data() + n / 2, n / 2, to.data(), call.precision);
      else
        std::ranges::copy(from, to.begin());
    }
  }
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
