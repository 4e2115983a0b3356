#include "lora/adapter_names.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/text.h"

namespace rullama {
namespace {

struct Names {
  Target target;
  std::string_view peft;     // below the layer, or below the model where a model has it once
  std::string_view gguf;     // below "blk.N." likewise
  std::string_view rullama;  // empty: not in its files
  bool in_layer;
};
constexpr std::array kNames{
    Names{Target::q, "self_attn.q_proj", "attn_q", "attn_q", true},
    Names{Target::k, "self_attn.k_proj", "attn_k", "attn_k", true},
    Names{Target::v, "self_attn.v_proj", "attn_v", "attn_v", true},
    Names{Target::o, "self_attn.o_proj", "attn_output", "attn_o", true},
    Names{Target::gate, "mlp.gate_proj", "ffn_gate", "ffn_gate", true},
    Names{Target::up, "mlp.up_proj", "ffn_up", "ffn_up", true},
    Names{Target::down, "mlp.down_proj", "ffn_down", "ffn_down", true},
    Names{Target::per_layer_gate, "per_layer_input_gate", "inp_gate", "", true},
    Names{Target::per_layer_proj, "per_layer_projection", "proj", "", true},
    Names{Target::per_layer_model, "per_layer_model_projection", "per_layer_model_proj", "", false},
    Names{Target::lm_head, "lm_head", "output", "lm_head", false},
    Names{Target::embed_tokens, "embed_tokens", "token_embd", "embed_tokens", false},
};

const Names& names_of(Target target) { return *std::ranges::find(kNames, target, &Names::target); }

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}
bool take_end(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}
// "12." in front
std::optional<std::uint32_t> take_number(std::string_view& text) {
  std::uint32_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end == text.data() + text.size() || *end != '.') return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return n;
}

std::optional<AdapterPlace> find(std::string_view Names::* member, std::string_view name, bool in_layer,
                                 std::uint32_t layer, bool b) {
  for (const Names& n : kNames)
    if (n.in_layer == in_layer && !(n.*member).empty() && n.*member == name)
      return AdapterPlace{n.target, in_layer ? layer : 0, b};
  return {};
}

}  // namespace

std::string_view without_wrappers(std::string_view name) {
  while (take(name, "base_model.") || take(name, "model.") || take(name, "language_model.")) continue;
  return name;
}

std::optional<AdapterPlace> place_in_peft(std::string_view name) {
  name = without_wrappers(name);
  bool b = false;
  take_end(name, ".weight");
  take_end(name, ".default");
  if (take_end(name, ".lora_B") || take_end(name, ".lora_embedding_B"))
    b = true;
  else if (!take_end(name, ".lora_A") && !take_end(name, ".lora_embedding_A"))
    return {};
  std::uint32_t layer = 0;
  const bool in_layer = take(name, "layers.");
  if (in_layer) {
    const auto number = take_number(name);
    if (!number) return {};
    layer = *number;
  }
  return find(&Names::peft, name, in_layer, layer, b);
}

bool is_frozen_copy(std::string_view name) {
  return take_end(name, ".base_layer.weight") && (name.ends_with(".embed_tokens") || name.ends_with(".lm_head"));
}

std::string peft_module_path(Target target, std::uint32_t layer) {
  const Names& n = names_of(target);
  if (target == Target::lm_head) return std::string(n.peft);
  return n.in_layer ? cat("model.layers.", layer, ".", n.peft) : cat("model.", n.peft);
}

std::string peft_name(const AdapterPlace& place) {
  const std::string path = cat("base_model.model.", peft_module_path(place.target, place.layer));
  if (place.target == Target::embed_tokens) return cat(path, ".lora_embedding_", place.b ? "B" : "A");
  return cat(path, ".lora_", place.b ? "B" : "A", ".weight");
}

std::optional<AdapterPlace> place_in_gguf(std::string_view name) {
  const bool b = take_end(name, ".weight.lora_b");
  if (!b && !take_end(name, ".weight.lora_a")) return {};
  std::uint32_t layer = 0;
  const bool in_layer = take(name, "blk.");
  if (in_layer) {
    const auto number = take_number(name);
    if (!number) return {};
    layer = *number;
  }
  return find(&Names::gguf, name, in_layer, layer, b);
}

std::string gguf_weight_name(Target target, std::uint32_t layer) {
  const Names& n = names_of(target);
  return cat(n.in_layer ? cat("blk.", layer, ".") : "", n.gguf, ".weight");
}

std::string gguf_name(const AdapterPlace& place) {
  return cat(gguf_weight_name(place.target, place.layer), ".lora_", place.b ? "b" : "a");
}

std::optional<AdapterPlace> place_in_rullama(std::string_view name) {
  if (!take(name, "lora.blk.")) return {};
  const auto layer = take_number(name);
  const bool b = take_end(name, ".B");
  if (!layer || (!b && !take_end(name, ".A"))) return {};
  for (const bool in_layer : {true, false})
    if (auto place = find(&Names::rullama, name, in_layer, *layer, b)) return place;
  return {};
}

}  // namespace rullama
