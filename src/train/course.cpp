#include "train/course.h"

#include <cmath>

#include "base/text.h"
#include "host/host.h"

namespace rullama {
namespace {

using host::rullama_host_now;

std::size_t targets_of(std::span<const TrainBatch> batches) {
  std::size_t n = 0;
  for (const TrainBatch& b : batches) n += b.target_count();
  return n;
}

Result<StepReport> take_step(Trainer& trainer, BatchPlan& plan, const ScheduleOptions& schedule) {
  const double start = rullama_host_now();
  StepReport r;
  const std::uint64_t step = trainer.steps();
  r.learning_rate = learning_rate(schedule, step);
  const auto batches = plan.step(step);
  const std::size_t targets = targets_of(batches);
  for (const TrainBatch& batch : batches) {
    auto sum = trainer.accumulate(batch, 1 / static_cast<float>(targets));
    if (!sum) return failed(sum);
    r.loss += *sum / static_cast<double>(targets);
    r.tokens += batch.rows();
  }
  if (!std::isfinite(r.loss))
    return fail(cat("step ", step + 1, ": the loss is no longer a number; use a smaller --learning-rate"));
  auto norm = trainer.update(r.learning_rate);
  if (!norm) return failed(norm);
  r.grad_norm = *norm;
  if (!std::isfinite(r.grad_norm))
    return fail(cat("step ", step + 1, ": the gradients are no longer numbers; use a smaller --learning-rate"));
  r.step = step + 1;
  r.steps = schedule.steps;
  r.epoch = plan.epoch_at(r.step);
  r.seconds = rullama_host_now() - start;
  return r;
}

}  // namespace

Result<double> mean_loss(Trainer& trainer, std::span<const TrainBatch> batches) {
  double sum = 0;
  for (const TrainBatch& batch : batches) {
    auto loss = trainer.evaluate(batch);
    if (!loss) return failed(loss);
    sum += *loss;
  }
  return sum / static_cast<double>(targets_of(batches));
}

Result<CourseEnd> run_course(Trainer& trainer, BatchPlan& plan, std::span<const TrainBatch> evaluation,
                             const CourseOptions& o, const CourseHooks& hooks, CoursePast past) {
  const std::uint64_t steps = o.schedule.steps;
  while (trainer.steps() < steps) {
    if (o.patience && past.evaluations_since >= o.patience) return CourseEnd::early;
    if (hooks.cancelled && hooks.cancelled()) {
      if (auto ok = hooks.checkpoint(); !ok) return failed(ok);
      return CourseEnd::cancelled;
    }
    auto report = take_step(trainer, plan, o.schedule);
    if (!report) return failed(report);
    const bool last = report->step == steps;
    const bool epoch_ends = std::floor(report->epoch) > std::floor(plan.epoch_at(report->step - 1));
    if (!evaluation.empty() && (last || (o.eval_steps ? report->step % o.eval_steps == 0 : epoch_ends))) {
      auto loss = mean_loss(trainer, evaluation);
      if (!loss) return failed(loss);
      report->eval_loss = *loss;
      report->best = !past.best_eval_loss || *loss < *past.best_eval_loss;
      past.evaluations_since = report->best ? 0 : past.evaluations_since + 1;
      if (report->best) past.best_eval_loss = *loss;
    }
    if (report->best && hooks.best)
      if (auto ok = hooks.best(); !ok) return failed(ok);
    if (auto ok = hooks.step(*report); !ok) return failed(ok);
    const bool early = o.patience && past.evaluations_since >= o.patience;
    if (last || early || (o.save_steps && report->step % o.save_steps == 0))
      if (auto ok = hooks.checkpoint(); !ok) return failed(ok);
  }
  return CourseEnd::complete;
}

}  // namespace rullama
