#include "models/gemma/forward.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "ops/attention/attention.h"
#include "ops/attention/heads_attention.h"
#include "ops/cache/cache.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/experts/experts.h"
#include "ops/geglu/geglu.h"
#include "ops/matmul/matmul.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rope/rope.h"
#include "ops/slice/slice.h"

namespace rullama {
namespace {

class Forward {
 public:
  Forward(Graph& graph, const GemmaConfig& config, const GemmaWeights& weights, const ForwardInput& input,
          const ForwardOptions& options)
      : g_(graph), c_(config), w_(weights), in_(input), o_(options), rows_(input.tokens.shape().elements()) {}

  ForwardOutput run() {
    Var x = embedding(t("token_embd", w_.token_embd), in_.tokens, std::sqrt(static_cast<float>(c_.hidden)));
    x = adapted(Target::embed_tokens, 0, in_.tokens, x);
    observe("embed", x);
    if (c_.per_layer) per_layer_ = per_layer_inputs(x);
    kv_.resize(c_.n_layers());
    Stream s{.x = x};
    for (std::uint32_t i = 0; i < c_.n_layers(); i++) layer(i, s);
    const Var normed = settle(s, "output_norm", w_.output_norm);
    observe(cat("layer", c_.n_layers() - 1, ".out"), s.x);
    ForwardOutput out;
    const auto wanted = std::min<std::uint64_t>(o_.logit_rows, rows_);
    if (wanted == 0 && rows_ > 0) return out;
    out.hidden = wanted < rows_ ? rows(normed, rows_ - wanted, wanted) : normed;
    observe("final_norm", out.hidden);
    if (!o_.head) return out;
    Var logits = linear(Target::lm_head, 0, out.hidden, w_.output);
    out.logits = c_.softcap > 0 ? softcap(logits, c_.softcap) : logits;
    return out;
  }

 private:
  struct KeyValue {
    Var k, v;
  };

  Var t(std::string_view name, const TensorPtr& tensor) { return tensor ? g_.tensor(name, tensor) : Var{}; }
  Var norm(Var x, std::string_view name, const TensorPtr& weight) { return rms_norm(x, t(name, weight), c_.eps); }
  Var linear(Target target, std::uint32_t layer, Var x, const TensorPtr& weight) {
    return adapted(target, layer, x, matmul(x, t("weight", weight)));
  }
  Var adapted(Target target, std::uint32_t layer, Var x, Var y) { return o_.adapt ? o_.adapt(target, layer, x, y) : y; }
  void observe(std::string_view name, Var value) {
    if (o_.observe) o_.observe(name, value);
  }

  // [rows, layers * P]; layer i reads its own columns
  Var per_layer_inputs(Var x) {
    const std::uint64_t n = c_.n_layers(), p = c_.per_layer;
    const float half = std::sqrt(0.5f), token_scale = half * std::sqrt(static_cast<float>(p));
    const Var tokens = in_.per_layer ? scale(in_.per_layer, token_scale)
                                     : embedding(t("per_layer_token_embd", w_.per_layer_embd), in_.tokens, token_scale);
    Var context = linear(Target::per_layer_model, 0, x, w_.per_layer_model_proj);
    // its scale, 1 / sqrt(hidden), is gone after the norm, but for what eps is to it
    context = rms_norm(g_.reshape(context, {rows_, n, p}), t("per_layer_proj_norm", w_.per_layer_proj_norm),
                       c_.eps * static_cast<float>(c_.hidden));
    const Var inputs = add_scaled(tokens, g_.reshape(context, {rows_, n * p}), half);
    observe("per_layer_inputs", inputs);
    return inputs;
  }

  // The residual stream: (x + rms_norm(block, w)) * factor, or x where there is no block. What reads it adds the last
  // block, with its own norm in the same kernel, and often the product that follows.
  struct Stream {
    Var x, block = {}, w = {}, factor = {};
  };
  [[nodiscard]] ResidualStep step(const Stream& s, std::string_view next_name, const TensorPtr& next) {
    return {.residual = s.x, .x = s.block, .w = s.w, .w_next = t(next_name, next), .scale = s.factor, .eps = c_.eps};
  }
  // Adds the block, and returns the norm of the sum.
  Var settle(Stream& s, std::string_view next_name, const TensorPtr& next) {
    if (!s.block) return norm(s.x, next_name, next);
    const ResidualNorm out = residual_norm(s.x, s.block, s.w, t(next_name, next), c_.eps, s.factor);
    s = {.x = out.sum};
    return out.normed;
  }

  void layer(std::uint32_t i, Stream& s) {
    const GemmaLayer& l = w_.layers[i];
    const Var attended = attention_block(i, s);
    observe(cat("layer", i, ".attn"), attended);
    s = {.x = s.x, .block = attended, .w = t("post_attention_norm", l.post_attention_norm)};
    const Var y = ffn_block(i, s);
    s = {.x = s.x, .block = y, .w = t("post_ffw_norm", l.post_ffw_norm)};
    if (c_.per_layer) {
      const Var projected = linear(Target::per_layer_proj, i, per_layer_gate(i, s), l.projection);
      s = {.x = s.x, .block = projected, .w = t("post_norm", l.post_norm)};
    }
    if (l.output_scale) s.factor = t("layer_output_scale", l.output_scale);
  }

  Var per_layer_gate(std::uint32_t i, Stream& s) {
    const GemmaLayer& l = w_.layers[i];
    if (joined()) {
      const ResidualStep sum{.residual = s.x, .x = s.block, .w = s.w, .eps = c_.eps};
      const ResidualProduct out = residual_gelu(sum, t("inp_gate", l.input_gate), per_layer_, i * c_.per_layer);
      s = {.x = out.sum};
      return out.y;
    }
    s = {.x = add(s.x, rms_norm(s.block, s.w, c_.eps))};
    return geglu(linear(Target::per_layer_gate, i, s.x, l.input_gate), per_layer_, i * c_.per_layer);
  }

  Var attention_block(std::uint32_t i, Stream& s) {
    const GemmaLayer& l = w_.layers[i];
    const LayerConfig& lc = c_.layers[i];
    const std::uint64_t d = lc.head_dim;
    const RopeOptions turn{.rotated = lc.rotated, .base = lc.rope_base, .position_scale = lc.rope_scale};
    const Var factors = lc.sliding ? Var{} : t("rope_freqs", w_.rope_freqs);
    const auto heads = [&](Var y, std::uint64_t n) { return g_.reshape(y, {rows_, n, d}); };

    const AttentionOptions options{.scale = c_.attention_scale, .window = lc.sliding ? c_.window : 0};
    const auto observe_stream = [&] {
      if (i > 0) observe(cat("layer", i - 1, ".out"), s.x);
    };
    if (joined()) {
      const Var out = joined_attention(i, s, factors, turn, options);
      observe_stream();
      return out;
    }
    const Var x = settle(s, "attn_norm", l.attn_norm);
    Var q = heads(linear(Target::q, i, x, l.q), lc.n_heads);
    q = rope(norm(q, "attn_q_norm", l.q_norm), in_.positions, factors, turn);
    if (c_.has_kv(i)) {
      Var k = heads(linear(Target::k, i, x, l.k), lc.n_kv_heads);
      Var v = l.v ? heads(linear(Target::v, i, x, l.v), lc.n_kv_heads) : k;  // k's raw projection, before its norm
      if (c_.value_norm) v = rms_norm(v, {}, c_.eps);
      k = rope(norm(k, "attn_k_norm", l.k_norm), in_.positions, factors, turn);
      kv_[i] = o_.cache ? store(o_.cache->layers[i], k, v) : KeyValue{k, v};
    }
    const KeyValue& kv = kv_[lc.kv_layer];
    const Var out = attention(q, kv.k, kv.v, in_.positions, options, in_.first);
    observe_stream();
    return linear(Target::o, i, g_.reshape(out, {rows_, lc.n_heads * d}), l.attn_output);
  }

  // Maps that nothing adapts are done together, and what follows them in the same kernels. With a cache: then nobody
  // asks for derivatives.
  [[nodiscard]] bool joined() const { return o_.cache && !o_.adapt && !in_.first; }

  // With its projection.
  Var joined_attention(std::uint32_t i, Stream& s, Var factors, const RopeOptions& turn,
                       const AttentionOptions& options) {
    const GemmaLayer& l = w_.layers[i];
    const LayerConfig& lc = c_.layers[i];
    std::vector<Var> weights{t("attn_q", l.q)};
    HeadInputs heads{.q_norm = t("attn_q_norm", l.q_norm), .positions = in_.positions, .factors = factors};
    if (c_.has_kv(i)) {
      weights.push_back(t("attn_k", l.k));
      if (l.v) weights.push_back(t("attn_v", l.v));
      const KvCache::Layer& cache = o_.cache->layers[i];
      kv_[i] = {t("cache_k", cache.k), t("cache_v", cache.v)};
      heads.k_norm = t("attn_k_norm", l.k_norm);
      heads.cache_k = kv_[i].k;
      heads.cache_v = kv_[i].v;
    }
    if (s.block) {
      const ResidualProduct out = residual_concat(step(s, "attn_norm", l.attn_norm), weights);
      s = {.x = out.sum};
      heads.projected = out.y;
    } else {
      heads.projected = matmul_concat(settle(s, "attn_norm", l.attn_norm), weights);
    }
    const KeyValue& kv = kv_[lc.kv_layer];
    return heads_attention(
        heads,
        {.n_heads = lc.n_heads, .n_kv_heads = lc.n_kv_heads, .turn = turn, .eps = c_.eps, .value_norm = c_.value_norm},
        kv.k, kv.v, options, t("attn_output", l.attn_output));
  }

  KeyValue store(const KvCache::Layer& cache, Var k, Var v) {
    const KeyValue kv{t("cache_k", cache.k), t("cache_v", cache.v)};
    cache_write(kv.k, k, in_.positions);
    cache_write(kv.v, v, in_.positions);
    return kv;
  }

  Var ffn_block(std::uint32_t i, Stream& s) {
    const GemmaLayer& l = w_.layers[i];
    Var gated;
    if (joined()) {
      const ResidualProduct out =
          residual_gated(step(s, "ffn_norm", l.ffn_norm), t("ffn_gate", l.gate), t("ffn_up", l.up));
      s = {.x = out.sum};
      gated = out.y;
    } else {
      const Var z = settle(s, "ffn_norm", l.ffn_norm);
      gated = geglu(linear(Target::gate, i, z, l.gate), linear(Target::up, i, z, l.up));
    }
    Var dense = linear(Target::down, i, gated, l.down);
    observe(cat("layer", i, ".mlp"), dense);
    if (!l.is_moe()) return dense;
    Var experts = expert_block(i, s.x);
    observe(cat("layer", i, ".experts"), experts);
    return add(norm(dense, "post_ffw_norm_1", l.post_ffw_norm_1), norm(experts, "post_ffw_norm_2", l.post_ffw_norm_2));
  }

  // The router sees the stream itself, the experts its norm.
  Var expert_block(std::uint32_t i, Var x) {
    const GemmaLayer& l = w_.layers[i];
    const std::uint64_t used = c_.n_experts_used, width = c_.expert_ffn;
    const Var z = norm(x, "pre_ffw_norm_2", l.pre_ffw_norm_2);
    const Routed routed = route(x, t("ffn_gate_inp", l.router), t("ffn_gate_inp.scale", l.router_scale), c_.eps,
                                static_cast<std::uint32_t>(used));
    Var gated;
    if (l.gate_up_experts && joined()) {
      gated = expert_gated_matmul(z, t("ffn_gate_up_exps", l.gate_up_experts), routed.ids);
    } else if (l.gate_up_experts) {
      const Var both = expert_matmul(z, t("ffn_gate_up_exps", l.gate_up_experts), routed.ids);
      gated = geglu_halves(g_.reshape(both, {rows_ * used, 2 * width}));
    } else {
      gated = geglu(expert_matmul(z, t("ffn_gate_exps", l.gate_experts), routed.ids),
                    expert_matmul(z, t("ffn_up_exps", l.up_experts), routed.ids));
    }
    gated = g_.reshape(gated, {rows_, used, width});
    Var down = expert_matmul(gated, t("ffn_down_exps", l.down_experts), routed.ids);
    return expert_combine(down, routed.ids, routed.weights, t("ffn_down_exps.scale", l.down_experts_scale));
  }

  Graph& g_;
  const GemmaConfig& c_;
  const GemmaWeights& w_;
  const ForwardInput& in_;
  const ForwardOptions& o_;
  std::uint64_t rows_;
  Var per_layer_;
  std::vector<KeyValue> kv_;
};

std::uint64_t slots_of(const GemmaConfig& config, const LayerConfig& layer, std::uint32_t context,
                       std::uint32_t batch) {
  const std::uint64_t ring = static_cast<std::uint64_t>(config.window) + batch - 1;
  return layer.sliding ? std::min<std::uint64_t>(ring, context) : context;
}

}  // namespace

ForwardOutput gemma_forward(Graph& graph, const GemmaConfig& config, const GemmaWeights& weights,
                            const ForwardInput& input, const ForwardOptions& options) {
  return Forward(graph, config, weights, input, options).run();
}

Result<KvCache> make_kv_cache(const GemmaConfig& config, Backend& backend, std::uint32_t context, std::uint32_t batch,
                              DType dtype) {
  KvCache cache;
  cache.context = context;
  cache.batch = batch;
  for (std::uint32_t i = 0; i < config.n_layers(); i++) {
    KvCache::Layer layer;
    if (config.has_kv(i)) {
      const LayerConfig& lc = config.layers[i];
      const TensorDesc desc{dtype, {slots_of(config, lc, context, batch), lc.n_kv_heads, lc.head_dim}};
      for (TensorPtr* tensor : {&layer.k, &layer.v}) {
        auto made = backend.make_tensor(desc, "the key/value cache (a smaller --ctx-size needs less)");
        if (!made) return failed(made);
        *tensor = *made;
        cache.bytes += desc.bytes();
      }
    }
    cache.layers.push_back(std::move(layer));
  }
  return cache;
}

std::uint64_t kv_cache_bytes(const GemmaConfig& config, std::uint32_t context, std::uint32_t batch, DType dtype) {
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < config.n_layers(); i++) {
    const LayerConfig& lc = config.layers[i];
    if (config.has_kv(i))
      bytes += 2 * slots_of(config, lc, context, batch) * lc.n_kv_heads * row_bytes(dtype, lc.head_dim);
  }
  return bytes;
}

}  // namespace rullama
