// Which examples each step of a training takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/examples.h"
#include "train/trainer.h"

namespace rullama {

struct BatchOptions {
  std::uint32_t batch_size = 4;  // examples of a batch, laid end to end without padding
  std::uint32_t grad_accum = 1;  // batches of a step
  std::uint32_t max_length = 1024;
  bool packing = false;  // a batch takes as many examples as batch_size * max_length tokens hold
  bool shuffle = true;   // a new order each epoch
  std::uint64_t seed = 0;
};

// A step takes the same examples whenever it is asked for, so a training goes on where it stopped. The last step of an
// epoch may be smaller than the others.
class BatchPlan {
 public:
  BatchPlan(std::span<const Example> examples, const BatchOptions& options);

  [[nodiscard]] std::vector<TrainBatch> step(std::uint64_t step);
  // Steps of the first `epochs` epochs, of which the last may be a part of one.
  [[nodiscard]] std::uint64_t steps_of(double epochs);
  // How many epochs have gone by before `step`.
  [[nodiscard]] double epoch_at(std::uint64_t step);
  // Of the largest batch that can occur.
  [[nodiscard]] std::uint32_t rows() const { return rows_; }

 private:
  using Batch = std::vector<std::uint32_t>;  // numbers of examples
  std::vector<Batch> batches_of(std::uint64_t epoch) const;
  std::vector<Batch> packed(std::span<const std::uint32_t> order) const;
  void reach(std::uint64_t epoch);  // first_step_ has the epoch and the one behind it
  std::uint64_t epoch_of(std::uint64_t step);

  std::span<const Example> examples_;
  BatchOptions o_;
  std::uint32_t rows_ = 0;
  std::vector<std::uint64_t> first_step_{0};  // of each epoch
  std::uint64_t current_epoch_ = UINT64_MAX;
  std::vector<Batch> current_;
};

}  // namespace rullama
