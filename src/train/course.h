// A training from its first step to its last: schedule, evaluation, early stopping, when to keep what.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "train/batches.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace rullama {

struct CourseOptions {
  ScheduleOptions schedule;       // with the number of steps
  std::uint64_t save_steps = 50;  // between checkpoints; 0: none on the way
  std::uint64_t eval_steps = 0;   // between evaluations; 0: at the end of each epoch
  std::uint32_t patience = 0;     // evaluations without a better loss after which training ends; 0: never early
};

struct StepReport {
  std::uint64_t step = 0, steps = 0;  // taken, of all
  double epoch = 0;
  double loss = 0;  // mean over the tokens to be predicted, before the step
  double learning_rate = 0;
  double grad_norm = 0;                  // before clipping
  std::uint64_t tokens = 0;              // of this step
  double seconds = 0;                    // of this step
  std::optional<double> eval_loss = {};  // after the step, where it was measured
  bool best = false;                     // and it is the lowest so far
};

struct CourseHooks {
  std::function<Result<>(const StepReport&)> step;  // after each
  std::function<Result<>()> checkpoint;             // now is the time to save the trainer's state
  std::function<Result<>()> best;                   // now is the best adapter so far
  std::function<bool()> cancelled;
};

enum class CourseEnd : std::uint8_t { complete, early, cancelled };

// What a course that goes on knows of the part before it.
struct CoursePast {
  std::optional<double> best_eval_loss = {};
  std::uint32_t evaluations_since = 0;  // without a better loss
};

// Goes on at trainer.steps(). `evaluation`: examples that are not trained on; may be empty.
[[nodiscard]] Result<CourseEnd> run_course(Trainer& trainer, BatchPlan& plan, std::span<const TrainBatch> evaluation,
                                           const CourseOptions& options, const CourseHooks& hooks,
                                           CoursePast past = {});

// The mean loss over the tokens to be predicted.
[[nodiscard]] Result<double> mean_loss(Trainer& trainer, std::span<const TrainBatch> batches);

}  // namespace rullama
