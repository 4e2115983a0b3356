#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// How a token is drawn from the best logits of a row; in this order in memory.
struct DrawRule {
  float uniform = 0;                 // [0, 1): which part of the distribution is hit
  float temperature = 0;             // 0 or less: the best one
  float truncation_temperature = 1;  // of the distribution that top_p and min_p cut
  float top_p = 1, min_p = 0;
  float count = 1;  // so many of the best take part, 1 or more
};
inline constexpr std::uint64_t kDrawRuleNumbers = sizeof(DrawRule) / sizeof(float);

// Draws one of the best logits of each row where they are, as Sampler (runtime/sampler.h) does, but in f32.
// best: U32 [rows, k, 2] as top_k gives it. barred: U32 [b], places that are never drawn; what is no place bars
// nothing. rules: F32 [rows, kDrawRuleNumbers], a DrawRule for each row. Returns U32 [rows, k + 1, 2]: `best`, and
// behind them the one that was drawn. If all of them are barred that is the first one. No derivative.
// token: U32 [rows] or an invalid Var; becomes the places that were drawn, for the next row to begin with.
[[nodiscard]] Var draw(Var best, Var barred, Var rules, Var token = {});

}  // namespace rullama
