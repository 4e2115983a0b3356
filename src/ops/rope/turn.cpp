#include "ops/rope/turn.h"

#include <bit>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace rullama {
namespace {

bool is_valid(const RopeOptions& o) { return o.rotated >= 2 && o.rotated % 2 == 0 && o.rotated <= 65536 && o.base > 1; }

}  // namespace

Result<> check_turn(std::string_view op, const RopeOptions& options, std::uint32_t segments, std::uint64_t width) {
  if (!is_valid(options))
    return fail(cat(op, ": ", options.rotated, " rotated elements with base ", options.base,
                    ", expected an even number of them and a base above 1"));
  if (std::uint64_t{options.rotated} * segments > width)
    return fail(cat(op, ": ", options.rotated * segments, " elements turn, but a head has ", width));
  return {};
}

Turn::Turn(const RopeOptions& options) : options_(options) {
  if (!is_valid(options)) return;
  for (std::uint32_t i = 0; i < half(); i++)
    inverse_.push_back(static_cast<float>(std::pow(static_cast<double>(options.base), -2.0 * i / options.rotated)));
}

void Turn::at(std::uint32_t position, const float* factors, std::span<double> cosine, std::span<double> sine) const {
  const float scaled = static_cast<float>(position) * options_.position_scale;
  for (std::size_t i = 0; i < inverse_.size(); i++) {
    float angle = scaled * inverse_[i];
    if (factors) angle /= factors[i];
    cosine[i] = std::cos(static_cast<double>(angle));
    sine[i] = std::sin(static_cast<double>(angle)) * (options_.inverse ? -1 : 1);
  }
}

std::string Turn::table() const {
  std::string text = cat("const INVERSE = array<f32, ", half(), ">(");
  for (const float f : inverse_) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", static_cast<double>(f));
    text += cat(digits, "f, ");
  }
  return text += ");\n";
}

std::string Turn::key() const { return cat(options_.rotated, "_", std::bit_cast<std::uint32_t>(options_.base)); }

}  // namespace rullama
