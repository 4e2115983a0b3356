// A new adapter to be trained.
#pragma once

#include <cstdint>
#include <vector>

#include "lora/adapter.h"
#include "runtime/runner.h"

namespace rullama {

struct LoraSetup {
  std::uint32_t rank = 16;
  float alpha = 32;
  bool rslora = false;          // scale alpha / sqrt(rank) instead of alpha / rank (Kalajdzievski 2023)
  std::vector<Target> targets;  // every layer's map of this kind; empty: the seven projections of a layer
  std::uint64_t seed = 0;
};

// A and B for every map that the targets name, with PEFT's start: B is zero and A uniform within +-1/sqrt(in)
// (Kaiming with a = sqrt 5); for embed_tokens A is zero and B standard normal. An error names a target that the model
// does not have.
[[nodiscard]] Result<Adapter> make_adapter(const TextModel& model, const LoraSetup& setup);

// The error where there is no memory for training so many parameters.
[[nodiscard]] Error too_many_parameters(std::uint64_t parameters, const Error& why);

}  // namespace rullama
