// Low-rank adapters: y = W x + scale * B (A x) on the linear maps of a model whose own weights stay as they are.
// Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models"; names and rules as in PEFT.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/gemma/forward.h"

namespace rullama {

// One adapted map. `layer` is 0 for those that a model has once (embed_tokens, lm_head, per_layer_model).
// embed_tokens: x = embedding_scale * (E[t] + scale * B A[:, t]), and the head that is tied to E does not see it.
struct AdapterPair {
  Target target = Target::q;
  std::uint32_t layer = 0;
  float scale = 1;  // lora_scale
  TensorPtr a;      // F32 [rank, in]
  TensorPtr b;      // F32 [out, rank]
};

// alpha / rank, or with rank-stabilised LoRA (Kalajdzievski 2023) alpha / sqrt(rank)
[[nodiscard]] float lora_scale(float alpha, std::uint32_t rank, bool rslora);

struct Adapter {
  std::vector<AdapterPair> pairs;
  std::uint64_t fingerprint = 0;  // of its content, where it came from a file
};

// An adapter at a strength of the caller's: 0 is the base model, 1 as trained. Several add up.
struct ActiveAdapter {
  std::shared_ptr<const Adapter> adapter;
  float strength = 1;
};

// Width of a map's input and output; for embed_tokens vocab and hidden. Nothing where the model has no such map.
struct LinearShape {
  std::uint64_t in = 0, out = 0;
};
[[nodiscard]] std::optional<LinearShape> linear_shape(const GemmaConfig& config, const GemmaWeights& weights,
                                                      Target target, std::uint32_t layer);
// PEFT's module name: "q_proj", "per_layer_input_gate", "embed_tokens", ...
[[nodiscard]] std::string_view module_name(Target target);
[[nodiscard]] std::optional<Target> target_of_module(std::string_view name);

// What the low-rank part of a map sees of the map's input, such as dropout in training.
using AdapterInput = std::function<Var(Target target, std::uint32_t layer, Var x)>;

// The hook of ForwardOptions::adapt for the sum of `active`; empty if there is none with a strength.
[[nodiscard]] AdaptLinear adapt_with(std::vector<ActiveAdapter> active, const GemmaConfig& config,
                                     AdapterInput input = {});

}  // namespace rullama
