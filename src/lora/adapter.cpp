#include "lora/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "ops/embedding/embedding.h"
#include "ops/matmul/matmul.h"

namespace rullama {
namespace {

struct Module {
  Target target;
  std::string_view name;
};
constexpr std::array kModules{
    Module{Target::q, "q_proj"},
    Module{Target::k, "k_proj"},
    Module{Target::v, "v_proj"},
    Module{Target::o, "o_proj"},
    Module{Target::gate, "gate_proj"},
    Module{Target::up, "up_proj"},
    Module{Target::down, "down_proj"},
    Module{Target::per_layer_gate, "per_layer_input_gate"},
    Module{Target::per_layer_proj, "per_layer_projection"},
    Module{Target::per_layer_model, "per_layer_model_projection"},
    Module{Target::lm_head, "lm_head"},
    Module{Target::embed_tokens, "embed_tokens"},
};

TensorPtr weight_of(const GemmaWeights& weights, Target target, std::uint32_t layer) {
  switch (target) {
    case Target::embed_tokens: return layer == 0 ? weights.token_embd : nullptr;
    case Target::lm_head: return layer == 0 ? weights.output : nullptr;
    case Target::per_layer_model: return layer == 0 ? weights.per_layer_model_proj : nullptr;
    default: break;
  }
  if (layer >= weights.layers.size()) return nullptr;
  const GemmaLayer& l = weights.layers[layer];
  switch (target) {
    case Target::q: return l.q;
    case Target::k: return l.k;
    case Target::v: return l.v;
    case Target::o: return l.attn_output;
    case Target::gate: return l.gate;
    case Target::up: return l.up;
    case Target::down: return l.down;
    case Target::per_layer_gate: return l.input_gate;
    case Target::per_layer_proj: return l.projection;
    default: return nullptr;
  }
}

struct Weighted {
  TensorPtr a, b;
  float scale;
};
using Table = std::map<std::pair<Target, std::uint32_t>, std::vector<Weighted>>;

}  // namespace

float lora_scale(float alpha, std::uint32_t rank, bool rslora) {
  const auto r = static_cast<float>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

std::optional<LinearShape> linear_shape(const GemmaConfig& config, const GemmaWeights& weights, Target target,
                                        std::uint32_t layer) {
  if ((target == Target::k || target == Target::v) && (layer >= config.n_layers() || !config.has_kv(layer))) return {};
  const TensorPtr weight = weight_of(weights, target, layer);
  if (!weight) return {};
  const Shape& shape = weight->desc().shape;
  if (target == Target::embed_tokens) return LinearShape{.in = shape[0], .out = shape[1]};
  return LinearShape{.in = shape[1], .out = shape[0]};
}

std::string_view module_name(Target target) {
  const auto found = std::ranges::find(kModules, target, &Module::target);
  return found == kModules.end() ? std::string_view{} : found->name;
}

std::optional<Target> target_of_module(std::string_view name) {
  const auto found = std::ranges::find(kModules, name, &Module::name);
  if (found == kModules.end()) return {};
  return found->target;
}

AdaptLinear adapt_with(std::vector<ActiveAdapter> active, const GemmaConfig& config, AdapterInput input) {
  Table table;
  const float embedding_scale = std::sqrt(static_cast<float>(config.hidden));
  for (const ActiveAdapter& each : active) {
    if (each.strength == 0) continue;
    for (const AdapterPair& pair : each.adapter->pairs) {
      const float scale = pair.scale * each.strength * (pair.target == Target::embed_tokens ? embedding_scale : 1.0f);
      table[{pair.target, pair.layer}].push_back({pair.a, pair.b, scale});
    }
  }
  if (table.empty()) return {};
  return [table = std::move(table), input = std::move(input)](Target target, std::uint32_t layer, Var x, Var y) {
    const auto found = table.find({target, layer});
    if (found == table.end() || !x) return y;
    Graph& g = *x.graph();
    if (input) x = input(target, layer, x);
    for (const Weighted& pair : found->second) {
      const Var a = g.tensor("lora_a", pair.a), b = g.tensor("lora_b", pair.b);
      const Var low = target == Target::embed_tokens ? embedding_columns(a, x) : matmul(x, a);
      y = matmul(low, b, {.scale = pair.scale, .plus = y});
    }
    return y;
  };
}

}  // namespace rullama
