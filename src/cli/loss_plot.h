// The course of a training as a picture.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "rullama/training.h"

namespace rullama::cli {

// One SVG file: loss of each step, its running mean, the losses on evaluation data, the learning rate.
[[nodiscard]] std::string loss_plot(std::span<const FinetuneStep> steps, std::string_view title);

}  // namespace rullama::cli
