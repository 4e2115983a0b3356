#include "models/gemma/weights.h"

#include <array>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/text.h"

namespace rullama {
namespace {

enum class Need : std::uint8_t { required, optional, absent };

Need when(bool condition) { return condition ? Need::required : Need::absent; }

// One line of the tensor table. `vector`: norms and scales, which must be F32.
template <class Owner>
struct Entry {
  std::string_view name;  // below "blk.N." for layers
  TensorPtr Owner::* member;
  Shape shape;
  Need need = Need::required;
  std::string_view alias = "";  // (g++ 12 cannot link an empty initialiser here)
  bool joins = false;           // reads the same input as the line before it
};

std::vector<Entry<GemmaWeights>> model_table(const GemmaConfig& c) {
  const std::uint64_t h = c.hidden, v = c.vocab, n = c.n_layers(), p = c.per_layer;
  const Need ple = when(p > 0);
  std::uint64_t global_head = 0;
  for (const LayerConfig& l : c.layers)
    if (!l.sliding) global_head = l.rotated;
  using W = GemmaWeights;
  return {
      {"token_embd.weight", &W::token_embd, {v, h}},
      {"output.weight", &W::output, {v, h}, Need::optional},
      {"output_norm.weight", &W::output_norm, {h}},
      {"rope_freqs.weight", &W::rope_freqs, {global_head / 2}, when(c.arch == GemmaArch::gemma4 && global_head > 0)},
      {"per_layer_token_embd.weight", &W::per_layer_embd, {v, n * p}, ple},
      {"per_layer_model_proj.weight", &W::per_layer_model_proj, {n * p, h}, ple},
      {"per_layer_proj_norm.weight", &W::per_layer_proj_norm, {p}, ple},
  };
}

// `moe`, `fused`, `tied_value`: what the file shows of this layer.
std::vector<Entry<GemmaLayer>> layer_table(const GemmaConfig& c, std::uint32_t i, bool moe, bool fused) {
  const LayerConfig& l = c.layers[i];
  const std::uint64_t h = c.hidden, d = l.head_dim, f = l.ffn, p = c.per_layer;
  const std::uint64_t q = l.n_heads * d, kv = l.n_kv_heads * d, e = c.n_experts, fe = c.expert_ffn;
  const bool gemma4 = c.arch == GemmaArch::gemma4;
  const Need own = when(c.has_kv(i)), ple = when(p > 0), expert = when(moe);
  // Gemma 4's global layers may use their keys as values.
  const Need value = own == Need::required && gemma4 && !l.sliding ? Need::optional : own;
  using L = GemmaLayer;
  return {
      {"attn_norm.weight", &L::attn_norm, {h}},
      {"attn_q.weight", &L::q, {q, h}},
      {"attn_k.weight", &L::k, {kv, h}, own, "", true},
      {"attn_v.weight", &L::v, {kv, h}, value, "", true},
      {"attn_q_norm.weight", &L::q_norm, {d}},
      {"attn_k_norm.weight", &L::k_norm, {d}, own},
      {"attn_output.weight", &L::attn_output, {h, q}},
      {"post_attention_norm.weight", &L::post_attention_norm, {h}, Need::required, "attn_post_norm.weight"},
      {"ffn_norm.weight", &L::ffn_norm, {h}, Need::required, "ffn_pre_norm.weight"},
      {"ffn_gate.weight", &L::gate, {f, h}},
      {"ffn_up.weight", &L::up, {f, h}, Need::required, "", true},
      {"ffn_down.weight", &L::down, {h, f}},
      {"post_ffw_norm.weight", &L::post_ffw_norm, {h}, Need::required, "ffn_post_norm.weight"},
      {"inp_gate.weight", &L::input_gate, {p, h}, ple},
      {"proj.weight", &L::projection, {h, p}, ple},
      {"post_norm.weight", &L::post_norm, {h}, ple},
      {"layer_output_scale.weight", &L::output_scale, {1}, gemma4 ? Need::optional : Need::absent, "layer_scalar"},
      {"ffn_gate_inp.weight", &L::router, {e, h}, expert},
      {"ffn_gate_inp.scale", &L::router_scale, {h}, expert},
      {"ffn_gate_up_exps.weight", &L::gate_up_experts, {e, 2 * fe, h}, when(moe && fused)},
      {"ffn_gate_exps.weight", &L::gate_experts, {e, fe, h}, when(moe && !fused)},
      {"ffn_up_exps.weight", &L::up_experts, {e, fe, h}, when(moe && !fused)},
      {"ffn_down_exps.weight", &L::down_experts, {e, h, fe}, expert},
      {"ffn_down_exps.scale", &L::down_experts_scale, {e}, expert, "ffn_gate_inp.per_expert_scale"},
      {"pre_ffw_norm_2.weight", &L::pre_ffw_norm_2, {h}, expert, "ffn_pre_norm_2.weight"},
      {"post_ffw_norm_1.weight", &L::post_ffw_norm_1, {h}, expert, "ffn_post_norm_1.weight"},
      {"post_ffw_norm_2.weight", &L::post_ffw_norm_2, {h}, expert, "ffn_post_norm_2.weight"},
  };
}

// A tensor that was found and checked, and where it goes.
struct Found {
  const GgufTensor* tensor;
  TensorDesc desc;
  TensorPtr* place;
  bool joins;
};

class Finder {
 public:
  explicit Finder(const Gguf& file) : file_(file) {}

  template <class Owner>
  Result<> find(const std::vector<Entry<Owner>>& table, std::string_view prefix, Owner& owner) {
    for (const Entry<Owner>& entry : table) {
      if (entry.need == Need::absent) continue;
      const std::string name = cat(prefix, entry.name);
      const GgufTensor* tensor = file_.tensor(name);
      if (!tensor && !entry.alias.empty()) tensor = file_.tensor(cat(prefix, entry.alias));
      if (!tensor && entry.need == Need::optional) continue;
      if (!tensor)
        return fail(cat("tensor ", quote(name), " is missing; the file is incomplete or not a Gemma text model"));
      if (auto ok = check(*tensor, entry.shape); !ok) return ok;
      found_.push_back({tensor, {*tensor->dtype, entry.shape}, &(owner.*entry.member), entry.joins});
    }
    return {};
  }

  [[nodiscard]] const std::vector<Found>& found() const { return found_; }

 private:
  static Result<> check(const GgufTensor& tensor, const Shape& shape) {
    Shape found = row_major(tensor);
    if (found != shape)
      return fail(cat("tensor ", quote(tensor.name), " has shape ", found.str(), ", expected ", shape.str(),
                      " (outputs first)"));
    if (!tensor.dtype || *tensor.dtype == DType::U32)
      return fail(
          ErrorCode::unsupported,
          cat("tensor ", quote(tensor.name), " has type ", tensor.type_name(),
              ", which this engine cannot read; use F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K"));
    if (shape.rank() == 1 && *tensor.dtype != DType::F32)
      return fail(ErrorCode::unsupported,
                  cat("tensor ", quote(tensor.name), " has type ", tensor.type_name(), ", expected F32"));
    return {};
  }

  const Gguf& file_;
  std::vector<Found> found_;
};

Result<> find_all(Finder& finder, const Gguf& file, const GemmaConfig& config, GemmaWeights& weights) {
  weights.layers.resize(config.n_layers());
  if (auto ok = finder.find(model_table(config), "", weights); !ok) return ok;
  for (std::uint32_t i = 0; i < config.n_layers(); i++) {
    const std::string prefix = cat("blk.", i, ".");
    const bool moe = file.tensor(cat(prefix, "ffn_gate_inp.weight")) != nullptr;
    const bool fused = file.tensor(cat(prefix, "ffn_gate_up_exps.weight")) != nullptr;
    if (moe && config.n_experts == 0)
      return fail(cat("tensor ", quote(cat(prefix, "ffn_gate_inp.weight")),
                      " needs the key 'gemma4.expert_count', which is missing or 0"));
    if (auto ok = finder.find(layer_table(config, i, moe, fused), prefix, weights.layers[i]); !ok) return ok;
  }
  return {};
}

bool stays_on_host(const Found& f, const GemmaWeights& weights, const WeightOptions& options) {
  return options.per_layer_on_host && f.place == &weights.per_layer_embd;
}

}  // namespace

Result<std::uint64_t> check_gemma_weights(const Gguf& file, const GemmaConfig& config, const WeightOptions& options) {
  Finder finder(file);
  GemmaWeights weights;
  if (auto ok = find_all(finder, file, config, weights); !ok) return failed(ok);
  std::uint64_t bytes = 0;
  for (const Found& f : finder.found())
    if (!stays_on_host(f, weights, options)) bytes += f.desc.bytes();
  return bytes;
}

Result<GemmaWeights> load_gemma_weights(const Gguf& file, const GemmaConfig& config, Backend& backend,
                                        const WeightOptions& options) {
  Finder finder(file);
  GemmaWeights weights;
  if (auto ok = find_all(finder, file, config, weights); !ok) return failed(ok);
  for (const Found& f : finder.found()) weights.bytes += f.desc.bytes();
  std::uint64_t done = 0;
  std::span<const Found> rest = finder.found();
  while (!rest.empty()) {
    std::size_t count = 1;
    while (count < rest.size() && rest[count].joins) count++;
    const auto group = rest.first(count);
    rest = rest.subspan(count);
    if (stays_on_host(group[0], weights, options)) {
      weights.per_layer_on_host = true;
    } else {
      std::vector<FileTensor> wanted;
      for (const Found& f : group) wanted.push_back({f.desc, f.tensor->name, f.tensor->offset});
      auto tensors = backend.load_tensors(wanted, file.source());
      if (!tensors) return failed(tensors);
      for (std::size_t i = 0; i < count; i++) *group[i].place = std::move((*tensors)[i]);
    }
    for (const Found& f : group) done += f.desc.bytes();
    if (options.progress && !options.progress(done, weights.bytes))
      return fail(ErrorCode::cancelled, "loading was cancelled");
  }
  if (!weights.output) weights.output = weights.token_embd;
  return weights;
}

}  // namespace rullama
