// How files name the matrices of an adapter.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/gemma/forward.h"

namespace rullama {

struct AdapterPlace {
  Target target = Target::q;
  std::uint32_t layer = 0;
  bool b = false;
};

// "base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight" and its variants; nothing if it is no such name.
// A name below what PEFT, and models that also see or hear, put around the text model.
[[nodiscard]] std::string_view without_wrappers(std::string_view name);
[[nodiscard]] std::optional<AdapterPlace> place_in_peft(std::string_view name);
[[nodiscard]] std::string peft_name(const AdapterPlace& place);
// The base model's own embeddings or head, which PEFT writes along when they have an adapter.
[[nodiscard]] bool is_frozen_copy(std::string_view name);
// "model.layers.3.self_attn.q_proj"
[[nodiscard]] std::string peft_module_path(Target target, std::uint32_t layer);

// "blk.3.attn_q.weight", in both dialects of a model's file
[[nodiscard]] std::string gguf_weight_name(Target target, std::uint32_t layer);
// "blk.3.attn_q.weight.lora_a"
[[nodiscard]] std::optional<AdapterPlace> place_in_gguf(std::string_view name);
[[nodiscard]] std::string gguf_name(const AdapterPlace& place);

// "lora.blk.3.attn_q.A", as the Rust program writes it
[[nodiscard]] std::optional<AdapterPlace> place_in_rullama(std::string_view name);

}  // namespace rullama
