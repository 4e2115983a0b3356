// Writes a GGUF file with the shapes of a released Gemma model and random weights, for measurements of speed and memory
// without the model itself. The text that it makes means nothing; the hidden state stays finite.
//
//   make_synthetic_gguf OUT.gguf PRESET [TYPE]     TYPE: Q4_K_M (default) or one type for all matrices
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "formats/dtype.h"
#include "formats/gguf_writer.h"
#include "host/native/file_writer.h"

namespace rullama {
namespace {

struct Preset {
  std::string_view name, arch;
  std::uint32_t layers, hidden, ffn, heads, kv, global_kv, head, global_head, window, per_layer, shared, period;
  bool wide;             // the layers that share keys have twice the ffn
  bool keys_are_values;  // in global layers
  std::uint32_t experts, used, expert_ffn;
};
constexpr Preset kPresets[] = {
    {"270m", "gemma3", 18, 640, 2048, 4, 1, 1, 256, 256, 512, 0, 0, 6, false, false, 0, 0, 0},
    {"e2b", "gemma4", 35, 1536, 6144, 8, 1, 1, 256, 512, 512, 256, 20, 5, true, false, 0, 0, 0},
    {"e4b", "gemma4", 42, 2560, 10240, 8, 2, 2, 256, 512, 512, 256, 18, 6, false, false, 0, 0, 0},
    {"12b", "gemma4", 48, 3840, 15360, 16, 8, 1, 256, 512, 1024, 0, 0, 6, false, true, 0, 0, 0},
    {"31b", "gemma4", 60, 5376, 21504, 32, 16, 4, 256, 512, 1024, 0, 0, 6, false, true, 0, 0, 0},
    {"26b-a4b", "gemma4", 30, 2816, 2112, 16, 8, 2, 256, 512, 1024, 0, 0, 6, false, true, 128, 8, 704},
};
constexpr std::uint64_t kVocab = 262144;

enum class Fill { matrix, norm, scale, frequencies };
struct Item {
  std::string name;
  std::vector<std::uint64_t> dims;  // fastest first
  DType type;
  Fill fill;
};

class Plan {
 public:
  Plan(const Preset& preset, std::string_view type) : p_(preset), mixed_(type == "Q4_K_M") {
    if (!mixed_) type_ = dtype_of_name(type).value_or(DType::F16);
  }
  [[nodiscard]] bool sliding(std::uint32_t i) const { return (i + 1) % p_.period != 0 && i + 1 != p_.layers; }
  [[nodiscard]] std::uint32_t ffn(std::uint32_t i) const {
    return p_.ffn * (p_.wide && i >= p_.layers - p_.shared ? 2 : 1);
  }

  std::vector<Item> items() {
    matrix("token_embd.weight", p_.hidden, kVocab, 0, true);
    vector("output_norm.weight", p_.hidden);
    const bool gemma4 = p_.arch == "gemma4";
    if (p_.per_layer) {
      matrix("per_layer_token_embd.weight", p_.layers * p_.per_layer, kVocab, 0, true);
      matrix("per_layer_model_proj.weight", p_.hidden, p_.layers * p_.per_layer);
      vector("per_layer_proj_norm.weight", p_.per_layer);
    }
    if (gemma4) vector("rope_freqs.weight", p_.global_head / 2, Fill::frequencies);
    for (std::uint32_t i = 0; i < p_.layers; i++) layer(i, gemma4);
    return std::move(items_);
  }

 private:
  void layer(std::uint32_t i, bool gemma4) {
    const auto name = [i](std::string_view role) { return cat("blk.", i, ".", role); };
    const std::uint64_t d = sliding(i) ? p_.head : p_.global_head, kv = (sliding(i) ? p_.kv : p_.global_kv) * d;
    const std::uint64_t h = p_.hidden, f = ffn(i);
    for (const char* norm : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"})
      vector(name(cat(norm, ".weight")), h);
    matrix(name("attn_q.weight"), h, p_.heads * d);
    vector(name("attn_q_norm.weight"), d);
    if (i < p_.layers - p_.shared) {
      matrix(name("attn_k.weight"), h, kv);
      vector(name("attn_k_norm.weight"), d);
      if (sliding(i) || !p_.keys_are_values) matrix(name("attn_v.weight"), h, kv, i, false, true);
    }
    matrix(name("attn_output.weight"), p_.heads * d, h);
    matrix(name("ffn_gate.weight"), h, f);
    matrix(name("ffn_up.weight"), h, f);
    matrix(name("ffn_down.weight"), f, h, i, false, true);
    if (p_.experts) {
      add(name("ffn_gate_inp.weight"), {h, p_.experts}, DType::F32, Fill::matrix);
      vector(name("ffn_gate_inp.scale"), h);
      matrix(name("ffn_gate_up_exps.weight"), h, 2 * p_.expert_ffn);
      items_.back().dims.push_back(p_.experts);
      matrix(name("ffn_down_exps.weight"), p_.expert_ffn, h, i, false, true);
      items_.back().dims.push_back(p_.experts);
      vector(name("ffn_down_exps.scale"), p_.experts);
      for (const char* norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"})
        vector(name(cat(norm, ".weight")), h);
    }
    if (p_.per_layer) {
      matrix(name("inp_gate.weight"), h, p_.per_layer);
      matrix(name("proj.weight"), p_.per_layer, h);
      vector(name("post_norm.weight"), h);
    }
    if (gemma4) vector(name("layer_output_scale.weight"), 1, Fill::scale);
  }
  void add(std::string name, std::vector<std::uint64_t> dims, DType type, Fill fill) {
    items_.push_back({std::move(name), std::move(dims), type, fill});
  }
  void vector(std::string name, std::uint64_t n, Fill fill = Fill::norm) {
    add(std::move(name), {n}, DType::F32, fill);
  }
  // Q4_K_M as llama.cpp mixes it: tables in six bits, and some of the values and down projections.
  void matrix(std::string name, std::uint64_t in, std::uint64_t out, std::uint32_t layer = 0, bool table = false,
              bool wants_more = false) {
    DType type = type_;
    if (mixed_) {
      const bool more = layer < p_.layers / 8 || layer >= 7 * p_.layers / 8 || (layer - p_.layers / 8) % 3 == 2;
      type = table || (wants_more && more) ? DType::Q6_K : DType::Q4_K;
    }
    if (in % info(type).block_elements) type = type == DType::Q6_K ? DType::Q8_0 : DType::Q5_0;
    if (in % info(type).block_elements) type = DType::F16;
    add(std::move(name), {in, out}, type, Fill::matrix);
  }

  const Preset& p_;
  bool mixed_;
  DType type_ = DType::F16;
  std::vector<Item> items_;
};

// Random rows of one type: written again and again, from another block on each time.
class Pattern {
 public:
  Pattern(DType type, std::uint64_t row) : type_(info(type)) {
    constexpr std::size_t kBlocks = 1021;  // a prime: rows and pattern do not fall into step
    std::vector<float> values(kBlocks * std::max(type_.block_elements, 256u));
    Random random(row);
    const double deviation = 1 / std::sqrt(static_cast<double>(row));
    for (float& v : values) v = static_cast<float>(random.normal() * deviation);
    const std::size_t blocks = values.size() / type_.block_elements;
    bytes_.resize(blocks * type_.block_bytes);
    type_.encode(values.data(), blocks, bytes_.data());
  }
  Result<> write(ByteSink& sink, std::uint64_t elements) const {
    std::uint64_t left = elements / type_.block_elements * type_.block_bytes;
    while (left) {
      const std::uint64_t n = std::min<std::uint64_t>(left, bytes_.size());
      if (auto ok = sink.write(std::span(bytes_).first(n)); !ok) return ok;
      left -= n;
    }
    return {};
  }

 private:
  const DTypeInfo& type_;
  std::vector<std::byte> bytes_;
};

void set_keys(GgufWriter& w, const Preset& p, const Plan& plan) {
  const auto set = [&](std::string_view key, auto value) { w.set(cat(p.arch, ".", key), value); };
  const auto set_array = [&](std::string_view key, const std::vector<std::uint32_t>& values) {
    w.set_array(cat(p.arch, ".", key), std::span<const std::uint32_t>(values));
  };
  w.set("general.architecture", p.arch);
  w.set("general.name", cat("synthetic ", p.name));
  set("context_length", 131072u);
  set("embedding_length", p.hidden);
  set("block_count", p.layers);
  set("attention.head_count", p.heads);
  set("attention.layer_norm_rms_epsilon", 1e-6f);
  set("attention.sliding_window", p.window);
  set("attention.key_length", p.global_head);
  set("attention.value_length", p.global_head);
  std::vector<std::uint32_t> ffn, kv, sliding;
  for (std::uint32_t i = 0; i < p.layers; i++) {
    ffn.push_back(plan.ffn(i));
    sliding.push_back(plan.sliding(i));
    kv.push_back(plan.sliding(i) ? p.kv : p.global_kv);
  }
  set_array("feed_forward_length", ffn);
  set_array("attention.head_count_kv", kv);
  set_array("attention.sliding_window_pattern", sliding);
  if (p.arch == "gemma4") {
    set("attention.key_length_swa", p.head);
    set("attention.value_length_swa", p.head);
    set("rope.dimension_count", p.global_head);
    set("rope.dimension_count_swa", p.head);
    set("attention.shared_kv_layers", p.shared);
    set("embedding_length_per_layer_input", p.per_layer);
    set("final_logit_softcapping", 30.0f);
  }
  if (p.experts) {
    set("expert_count", p.experts);
    set("expert_used_count", p.used);
    set("expert_feed_forward_length", p.expert_ffn);
  }
}

void set_vocabulary(GgufWriter& w) {
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>"};
  std::vector<std::int32_t> types(4, 3);
  for (int i = 0; i < 256; i++) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", i);
    tokens.emplace_back(text);
    types.push_back(6);
  }
  for (std::uint64_t i = tokens.size(); i < kVocab; i++) tokens.push_back(cat("\u2581x", i));
  types.resize(kVocab, 1);
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const std::vector<float> scores(kVocab, 0.0f);
  w.set("tokenizer.ggml.model", "gemma4");
  w.set_array("tokenizer.ggml.tokens", std::span<const std::string_view>(views));
  w.set_array("tokenizer.ggml.scores", std::span<const float>(scores));
  w.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
  w.set_array("tokenizer.ggml.merges", std::span<const std::string_view>());
  w.set("tokenizer.ggml.bos_token_id", 2u);
  w.set("tokenizer.ggml.eos_token_id", 1u);
  w.set("tokenizer.ggml.unknown_token_id", 3u);
}

std::vector<float> small_values(const Item& item) {
  std::vector<float> values(item.dims[0], item.fill == Fill::scale ? 0.8f : 1.0f);
  if (item.fill == Fill::frequencies)  // a quarter of the pairs turn
    for (std::size_t i = values.size() / 4; i < values.size(); i++) values[i] = 1e30f;
  return values;
}

Result<> make(const std::string& path, const Preset& preset, std::string_view type) {
  Plan plan(preset, type);
  GgufWriter writer;
  set_keys(writer, preset, plan);
  set_vocabulary(writer);
  const std::vector<Item> items = plan.items();
  for (const Item& item : items)
    if (auto ok = writer.add_tensor(item.name, item.dims, info(item.type).ggml_id); !ok) return ok;
  auto file = FileWriter::create(path);
  if (!file) return failed(file);
  std::map<std::pair<DType, std::uint64_t>, Pattern> patterns;
  const auto write = [&](std::size_t index, ByteSink& sink) -> Result<> {
    const Item& item = items[index];
    if (item.fill != Fill::matrix) {
      const std::vector<float> values = small_values(item);
      return sink.write(std::as_bytes(std::span(values)));
    }
    std::uint64_t elements = 1;
    for (const std::uint64_t d : item.dims) elements *= d;
    const std::pair key{item.type, item.dims[0]};
    return patterns.try_emplace(key, item.type, item.dims[0]).first->second.write(sink, elements);
  };
  if (auto ok = writer.write(*file, write); !ok) return ok;
  return file->commit(false);
}

}  // namespace
}  // namespace rullama

int main(int argc, char** argv) {
  using namespace rullama;
  for (const Preset& preset : kPresets) {
    if (argc < 3 || argc > 4 || preset.name != argv[2]) continue;
    const auto made = make(argv[1], preset, argc > 3 ? argv[3] : "Q4_K_M");
    if (made) return 0;
    std::fprintf(stderr, "make_synthetic_gguf: %s\n", made.error().message.c_str());
    return 1;
  }
  std::fputs("usage: make_synthetic_gguf OUT.gguf 270m|e2b|e4b|12b|31b|26b-a4b [TYPE]\n", stderr);
  return 2;
}
