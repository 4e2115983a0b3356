#include "train/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

namespace rullama {
namespace {

constexpr std::array<std::pair<Schedule, std::string_view>, 4> kNames{{
    {Schedule::constant, "constant"},
    {Schedule::linear, "linear"},
    {Schedule::cosine, "cosine"},
    {Schedule::cosine_with_restarts, "cosine_with_restarts"},
}};

double half_cosine(double share) { return 0.5 * (1 + std::cos(std::numbers::pi * share)); }

}  // namespace

std::string_view name(Schedule schedule) {
  return std::ranges::find(kNames, schedule, &std::pair<Schedule, std::string_view>::first)->second;
}

std::optional<Schedule> schedule_of(std::string_view name) {
  for (const auto& [schedule, known] : kNames)
    if (known == name) return schedule;
  return {};
}

double learning_rate(const ScheduleOptions& o, std::uint64_t step) {
  if (step < o.warmup) return o.peak * static_cast<double>(step) / static_cast<double>(o.warmup);
  if (o.kind == Schedule::constant) return o.peak;
  if (step >= o.steps) return 0;
  const double share = static_cast<double>(step - o.warmup) / static_cast<double>(o.steps - o.warmup);
  if (o.kind == Schedule::linear) return o.peak * (1 - share);
  if (o.kind == Schedule::cosine) return o.peak * half_cosine(share);
  return o.peak * half_cosine(std::fmod(share * static_cast<double>(o.cycles), 1.0));
}

}  // namespace rullama
