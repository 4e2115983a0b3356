// The angles of rope, for ops that turn heads on their way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/rope/rope.h"
#include "rullama/result.h"

namespace rullama {

// "rope: 3 rotated elements with base 10000, expected ..."; `segments` of them in a head of `width`.
[[nodiscard]] Result<> check_turn(std::string_view op, const RopeOptions& options, std::uint32_t segments,
                                  std::uint64_t width);

class Turn {
 public:
  Turn() = default;
  // Options that check_turn refuses give no angles.
  explicit Turn(const RopeOptions& options);

  [[nodiscard]] std::uint32_t half() const { return options_.rotated / 2; }
  [[nodiscard]] const RopeOptions& options() const { return options_; }
  // cos and sin of each pair's angle at `position`; factors: null or half() of them.
  void at(std::uint32_t position, const float* factors, std::span<double> cosine, std::span<double> sine) const;
  // `const INVERSE` of turn.wgsl: base^(-2i/r), rounded once. An error of one unit in the last place would turn
  // position 131,071 by 0.008.
  [[nodiscard]] std::string table() const;
  [[nodiscard]] std::string key() const;

 private:
  RopeOptions options_{.rotated = 0, .base = 0};
  std::vector<float> inverse_;
};

}  // namespace rullama
