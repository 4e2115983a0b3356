#include "train/batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace rullama {
namespace {

constexpr std::size_t kOpenBatches = 64;  // while packing

}  // namespace

BatchPlan::BatchPlan(std::span<const Example> examples, const BatchOptions& options)
    : examples_(examples), o_(options) {
  std::vector<std::uint64_t> lengths;
  for (const Example& e : examples) lengths.push_back(e.tokens.size());
  std::ranges::sort(lengths, std::greater());
  std::uint64_t most = 0;
  if (o_.packing)
    most = std::uint64_t{o_.batch_size} * o_.max_length;
  else
    for (std::size_t i = 0; i < std::min<std::size_t>(o_.batch_size, lengths.size()); i++) most += lengths[i];
  // a data set that fits into one batch needs no more rows than it has
  most = std::min(most, std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0}));
  rows_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(most, UINT32_MAX));
}

std::vector<BatchPlan::Batch> BatchPlan::packed(std::span<const std::uint32_t> order) const {
  struct Open {
    Batch batch;
    std::uint64_t used = 0;
  };
  std::vector<Batch> done;
  std::vector<Open> open;
  for (const std::uint32_t i : order) {
    const std::uint64_t length = examples_[i].tokens.size();
    auto fits = std::ranges::find_if(open, [&](const Open& b) { return b.used + length <= rows_; });
    if (fits == open.end()) {
      if (open.size() == kOpenBatches) {
        const auto fullest = std::ranges::max_element(open, {}, &Open::used);
        done.push_back(std::move(fullest->batch));
        open.erase(fullest);
      }
      fits = open.insert(open.end(), Open{});
    }
    fits->batch.push_back(i);
    fits->used += length;
  }
  for (Open& b : open) done.push_back(std::move(b.batch));
  return done;
}

std::vector<BatchPlan::Batch> BatchPlan::batches_of(std::uint64_t epoch) const {
  std::vector<std::uint32_t> order(examples_.size());
  std::iota(order.begin(), order.end(), 0);
  if (o_.shuffle) {
    Random random(o_.seed * 0x9e3779b97f4a7c15ull + epoch);
    for (std::size_t i = order.size(); i > 1; i--)
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.uniform() * static_cast<double>(i))]);
  }
  if (o_.packing) return packed(order);
  std::vector<Batch> batches;
  for (std::size_t at = 0; at < order.size(); at += o_.batch_size)
    batches.emplace_back(
        order.begin() + static_cast<std::ptrdiff_t>(at),
        order.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(at + o_.batch_size, order.size())));
  return batches;
}

void BatchPlan::reach(std::uint64_t epoch) {
  while (first_step_.size() <= epoch + 1) {
    const std::size_t batches =
        o_.packing ? batches_of(first_step_.size() - 1).size() : (examples_.size() + o_.batch_size - 1) / o_.batch_size;
    first_step_.push_back(first_step_.back() + (batches + o_.grad_accum - 1) / o_.grad_accum);
  }
}

std::uint64_t BatchPlan::epoch_of(std::uint64_t step) {
  while (first_step_.back() <= step) reach(first_step_.size() - 1);
  return static_cast<std::uint64_t>(std::ranges::upper_bound(first_step_, step) - first_step_.begin()) - 1;
}

std::uint64_t BatchPlan::steps_of(double epochs) {
  const double whole = std::floor(epochs);
  const auto last = static_cast<std::uint64_t>(whole);
  reach(last);
  const auto length = static_cast<double>(first_step_[last + 1] - first_step_[last]);
  return first_step_[last] + static_cast<std::uint64_t>(std::ceil((epochs - whole) * length));
}

double BatchPlan::epoch_at(std::uint64_t step) {
  const std::uint64_t epoch = epoch_of(step);
  return static_cast<double>(epoch) + static_cast<double>(step - first_step_[epoch]) /
                                          static_cast<double>(first_step_[epoch + 1] - first_step_[epoch]);
}

std::vector<TrainBatch> BatchPlan::step(std::uint64_t step) {
  const std::uint64_t epoch = epoch_of(step);
  if (epoch != current_epoch_) {
    current_ = batches_of(epoch);
    current_epoch_ = epoch;
  }
  const std::size_t first = static_cast<std::size_t>(step - first_step_[epoch]) * o_.grad_accum;
  std::vector<TrainBatch> batches;
  for (std::size_t i = first; i < std::min(first + o_.grad_accum, current_.size()); i++) {
    TrainBatch batch;
    for (const std::uint32_t e : current_[i]) batch.add(examples_[e].tokens, examples_[e].labels);
    batches.push_back(std::move(batch));
  }
  return batches;
}

}  // namespace rullama
