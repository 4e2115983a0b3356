#include "models/gemma/config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"

namespace rullama {
namespace {

constexpr std::uint32_t kMaxLayers = 1024, kMaxWidth = 1u << 20, kMaxHead = 4096, kMaxContext = 1u << 24;
constexpr std::uint32_t kMaxExperts = 256, kMaxUsedExperts = 16;  // what the router op takes

// Reads keys below the architecture's name and keeps the first error.
class Keys {
 public:
  Keys(const Gguf& file, std::string arch) : file_(file), arch_(std::move(arch)) {}

  [[nodiscard]] std::string full(std::string_view key) const { return cat(arch_, ".", key); }
  [[nodiscard]] bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }

  // An integer in [lo, hi]; `absent` where the key is missing, or an error if that is not given.
  std::uint32_t integer(std::string_view key, std::uint32_t lo, std::uint32_t hi,
                        std::optional<std::uint32_t> absent = {}) {
    if (!has(key)) return absent ? *absent : missing(key);
    return bounded(key, take(file_.get_u64(full(key))), lo, hi);
  }
  // A scalar for all layers, or an array with one value for each.
  std::vector<std::uint32_t> per_layer(std::string_view key, std::uint32_t layers, std::uint32_t lo, std::uint32_t hi) {
    if (!has(key)) return missing(key), std::vector<std::uint32_t>(layers, lo);
    std::vector<std::uint32_t> values = take(file_.per_layer_u32(full(key), layers));
    values.resize(layers, lo);
    for (std::uint32_t& v : values) v = bounded(key, v, lo, hi);
    return values;
  }
  // A finite number, at least `lo` (or above it, if `open`).
  float number(std::string_view key, float absent, float lo, bool open) {
    if (!has(key)) return absent;
    const float v = take(file_.get_f32(full(key)));
    if (!std::isfinite(v) || v < lo || (open && v == lo))
      note(cat("key ", quote(full(key)), " is ", v, ", expected a number ", open ? "above " : "of at least ", lo));
    return v;
  }
  template <class T>
  T take(Result<T> value) {
    if (value) return std::move(*value);
    if (!error_) error_ = std::move(value.error());
    return T{};
  }
  void note(std::string message) {
    if (!error_) error_ = Error{std::move(message), ErrorCode::invalid};
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  std::uint32_t missing(std::string_view key) {
    note(cat("key ", quote(full(key)), " is missing; the file is incomplete"));
    return 0;
  }
  std::uint32_t bounded(std::string_view key, std::uint64_t v, std::uint32_t lo, std::uint32_t hi) {
    if (v >= lo && v <= hi) return static_cast<std::uint32_t>(v);
    note(cat("key ", quote(full(key)), " is ", v, ", expected ", lo, " to ", hi));
    return lo;
  }

  const Gguf& file_;
  std::string arch_;
  std::optional<Error> error_;
};

std::vector<bool> sliding_layers(Keys& keys, const Gguf& file, GemmaArch arch, std::uint32_t n) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  std::uint32_t period = 6;  // Gemma 3 without the key: every sixth layer is global
  if (keys.has(key)) {
    if (file.is_array(keys.full(key))) {
      const auto flags = keys.take(file.per_layer_u32(keys.full(key), n));
      std::vector<bool> sliding(n, false);
      for (std::uint32_t i = 0; i < n && i < flags.size(); i++) sliding[i] = flags[i] != 0;
      return sliding;
    }
    period = keys.integer(key, 1, kMaxLayers);
  } else if (arch == GemmaArch::gemma4) {
    keys.note(cat("key ", quote(keys.full(key)), " is missing; the file is incomplete"));
  }
  std::vector<bool> sliding(n);
  for (std::uint32_t i = 0; i < n; i++) sliding[i] = period > 0 && (i + 1) % period != 0;
  return sliding;
}

// Linear scaling of the positions of global layers, as larger Gemma 3 models have it.
float rope_scale(Keys& keys, const Gguf& file) {
  if (!keys.has("rope.scaling.type")) return 1;
  const std::string type(keys.take(file.get_string(keys.full("rope.scaling.type"))));
  if (type == "none") return 1;
  if (type != "linear") {
    keys.note(cat("key ", quote(keys.full("rope.scaling.type")), " is ", quote(type), ", expected 'linear' or 'none'"));
    return 1;
  }
  return 1 / keys.number("rope.scaling.factor", 1, 0, true);
}

void read_heads(Keys& keys, GemmaConfig& c, const Gguf& file) {
  const std::uint32_t n = c.n_layers();
  // Some old files leave the head width out: the query norm has it.
  std::optional<std::uint32_t> width;
  if (const GgufTensor* norm = file.tensor("blk.0.attn_q_norm.weight"); norm && !keys.has("attention.key_length"))
    width = static_cast<std::uint32_t>(std::min<std::uint64_t>(norm->dims[0], kMaxHead));
  const std::uint32_t global = keys.integer("attention.key_length", 2, kMaxHead, width);
  const std::uint32_t sliding = keys.integer("attention.key_length_swa", 2, kMaxHead, global);
  for (const auto& [key, expected] :
       {std::pair{"attention.value_length", global}, {"attention.value_length_swa", sliding}})
    if (keys.integer(key, 1, kMaxHead, expected) != expected)
      keys.note(
          cat("key ", quote(keys.full(key)), " differs from the key length ", expected, ", which no Gemma model has"));
  const std::uint32_t turned = keys.integer("rope.dimension_count", 2, kMaxHead, global);
  const std::uint32_t turned_swa =
      keys.integer("rope.dimension_count_swa", 2, kMaxHead, c.arch == GemmaArch::gemma4 ? sliding : turned);
  const auto heads = keys.per_layer("attention.head_count", n, 1, 65536);
  auto kv_heads = keys.per_layer("attention.head_count_kv", n, 1, 65536);
  const std::uint32_t global_kv = keys.integer("attention.global_head_count_kv", 1, 65536, 0);
  for (std::uint32_t i = 0; i < n; i++) {
    LayerConfig& l = c.layers[i];
    if (!l.sliding && global_kv) kv_heads[i] = global_kv;
    l.head_dim = l.sliding ? sliding : global;
    l.rotated = l.sliding ? turned_swa : turned;
    l.n_heads = heads[i];
    l.n_kv_heads = kv_heads[i];
    if (l.n_heads % l.n_kv_heads != 0)
      keys.note(cat("key ", quote(keys.full("attention.head_count_kv")), " is ", l.n_kv_heads, " for layer ", i,
                    ", which does not divide the ", l.n_heads, " query heads"));
    if (l.head_dim % 2 || l.rotated % 2 || l.rotated > l.head_dim)
      keys.note(cat("key ", quote(keys.full("attention.key_length")), ": head width ", l.head_dim, " with ", l.rotated,
                    " rotated elements is not possible"));
  }
}

void read_shared_layers(Keys& keys, GemmaConfig& c) {
  const std::uint32_t n = c.n_layers();
  const std::uint32_t shared = keys.integer("attention.shared_kv_layers", 0, n - 1, 0);
  for (std::uint32_t i = 0; i < n; i++) {
    LayerConfig& l = c.layers[i];
    l.kv_layer = i;
    if (i < n - shared) continue;
    std::uint32_t donor = n - shared;
    while (donor > 0 && c.layers[donor - 1].sliding != l.sliding) donor--;
    if (donor == 0) {
      keys.note(cat("key ", quote(keys.full("attention.shared_kv_layers")), " is ", shared, ": layer ", i,
                    " finds no earlier layer of its kind to share keys with"));
      return;
    }
    l.kv_layer = donor - 1;
    const LayerConfig& d = c.layers[donor - 1];
    if (d.head_dim != l.head_dim || d.n_kv_heads != l.n_kv_heads)
      keys.note(cat("layers ", i, " and ", donor - 1, " share keys but differ in head width or count"));
  }
}

void read_experts(Keys& keys, GemmaConfig& c) {
  c.n_experts = keys.integer("expert_count", 0, kMaxExperts, 0);
  if (c.n_experts == 0) return;
  c.n_experts_used = keys.integer("expert_used_count", 1, std::min(c.n_experts, kMaxUsedExperts));
  c.expert_ffn = keys.integer("expert_feed_forward_length", 1, kMaxWidth);
}

}  // namespace

Shape row_major(const GgufTensor& tensor) {
  const auto& d = tensor.dims;
  switch (tensor.rank) {
    case 1: return {d[0]};
    case 2: return {d[1], d[0]};
    case 3: return {d[2], d[1], d[0]};
    default: return {d[3], d[2], d[1], d[0]};
  }
}

Result<GemmaConfig> read_gemma_config(const Gguf& file) {
  auto arch = file.get_string("general.architecture");
  if (!arch) return failed(arch);
  GemmaConfig c;
  if (*arch == "gemma3") {
    c.arch = GemmaArch::gemma3;
  } else if (*arch == "gemma4") {
    c.arch = GemmaArch::gemma4;
  } else {
    return fail(ErrorCode::unsupported,
                cat("key 'general.architecture' is ", quote(*arch), "; this engine runs 'gemma3' and 'gemma4'"));
  }
  if (file.find("split.count"))
    if (auto parts = file.get_u64("split.count"); parts && *parts > 1)
      return fail(ErrorCode::unsupported,
                  cat("the file is one of ", *parts, " parts (key 'split.count'); merge them into one file first"));
  Keys keys(file, std::string(*arch));
  if (file.find("general.name"))
    if (auto name = file.get_string("general.name")) c.name = *name;

  const std::uint32_t n = keys.integer("block_count", 1, kMaxLayers);
  if (keys.error()) return std::unexpected(*keys.error());
  c.hidden = keys.integer("embedding_length", 1, kMaxWidth);
  c.context_length = keys.integer("context_length", 1, kMaxContext);
  c.per_layer = keys.integer("embedding_length_per_layer_input", 0, kMaxWidth, 0);
  c.eps = keys.number("attention.layer_norm_rms_epsilon", 1e-6f, 0, true);
  c.softcap = keys.number("final_logit_softcapping", c.arch == GemmaArch::gemma4 ? 30.0f : 0.0f, 0, false);
  c.value_norm = c.arch == GemmaArch::gemma4;

  c.layers.resize(n);
  const auto sliding = sliding_layers(keys, file, c.arch, n);
  const auto ffn = keys.per_layer("feed_forward_length", n, 1, kMaxWidth);
  const float base = keys.number("rope.freq_base", keys.number("rope.global.freq_base", 1e6f, 0, true), 0, true);
  const float base_swa = keys.number("rope.freq_base_swa", keys.number("rope.local.freq_base", 1e4f, 0, true), 0, true);
  const float scale = rope_scale(keys, file);
  bool any_sliding = false;
  for (std::uint32_t i = 0; i < n; i++) {
    LayerConfig& l = c.layers[i];
    l.sliding = sliding[i];
    l.ffn = ffn[i];
    l.rope_base = l.sliding ? base_swa : base;
    l.rope_scale = l.sliding ? 1.0f : scale;
    any_sliding = any_sliding || l.sliding;
  }
  if (any_sliding) c.window = keys.integer("attention.sliding_window", 1, kMaxContext);
  read_heads(keys, c, file);
  read_shared_layers(keys, c);
  read_experts(keys, c);
  if (keys.error()) return std::unexpected(*keys.error());

  if (c.arch == GemmaArch::gemma3) {
    // The 27B model, known by its 62 layers, scales by the hidden width a head; no key says so.
    const float width = n == 62 ? static_cast<float>(c.hidden) / static_cast<float>(c.layers[0].n_heads)
                                : static_cast<float>(c.layers[0].head_dim);
    c.attention_scale = 1 / std::sqrt(width);
  }
  const GgufTensor* embedding = file.tensor("token_embd.weight");
  if (!embedding) return fail("tensor 'token_embd.weight' is missing; the file is incomplete or not a text model");
  const std::uint64_t vocab = row_major(*embedding).rows();
  if (vocab == 0 || vocab > (1u << 24))
    return fail(cat("tensor 'token_embd.weight' has ", vocab, " rows, expected 1 to ", 1u << 24));
  c.vocab = static_cast<std::uint32_t>(vocab);
  return c;
}

}  // namespace rullama
