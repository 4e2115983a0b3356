// How the learning rate goes over a training.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace rullama {

enum class Schedule : std::uint8_t { constant, linear, cosine, cosine_with_restarts };
[[nodiscard]] std::string_view name(Schedule schedule);
[[nodiscard]] std::optional<Schedule> schedule_of(std::string_view name);

struct ScheduleOptions {
  Schedule kind = Schedule::linear;
  double peak = 2e-4;
  std::uint64_t warmup = 0;  // steps over which the rate rises linearly from 0
  std::uint64_t steps = 0;   // of the whole training; at its end all but `constant` reach 0
  std::uint32_t cycles = 1;  // of cosine_with_restarts (Loshchilov & Hutter 2017)
};

// The rate of step `step`, counted from 0; the same formulas as HuggingFace's schedulers of these names.
[[nodiscard]] double learning_rate(const ScheduleOptions& options, std::uint64_t step);

}  // namespace rullama
