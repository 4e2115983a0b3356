// How the next token is chosen from the distribution.
#pragma once

#include <cstdint>

namespace rullama {

using Token = std::uint32_t;

// Defaults are those that Gemma's publisher recommends. The order is: penalties, top-k, top-p, min-p, temperature
// (top-p sees the untempered distribution), unless `temperature_first`.
struct Sampling {
  float temperature = 1.0f;  // 0 or less: greedy, the lowest id on a tie
  std::uint32_t top_k = 64;  // 0: all
  float top_p = 0.95f;       // (0, 1]; 1: all
  float min_p = 0.0f;        // [0, 1]; keeps tokens with at least min_p times the largest probability
  float repeat_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  std::uint32_t repeat_last_n = 64;  // tokens that the penalties look back on
  bool temperature_first = false;
  std::uint64_t seed = 0;  // the same seed, device and input give the same tokens
};

}  // namespace rullama
