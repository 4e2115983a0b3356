#include "lora/adapter_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "base/hash.h"
#include "base/text.h"
#include "formats/gguf_writer.h"
#include "lora/adapter_names.h"

namespace rullama {
namespace {

// A matrix in a file.
struct Matrix {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  std::uint64_t offset = 0;
};

class Reader {
 public:
  // The scale of a pair, given its rank.
  using Scale = std::function<Result<float>(const AdapterPlace&, std::uint32_t rank)>;

  Reader(std::shared_ptr<const ByteSource> source, const AdapterHost& host) : source_(std::move(source)), host_(host) {}

  Result<> add(const AdapterPlace& place, Matrix matrix) {
    if (matrix.shape.rank() != 2)
      return wrong(matrix.name, cat("is ", matrix.shape.str(), ", expected two dimensions"));
    Pair& pair = pairs_[{place.target, place.layer}];
    (place.b ? pair.b : pair.a) = std::move(matrix);
    (place.b ? pair.has_b : pair.has_a) = true;
    return {};
  }

  Result<Adapter> finish(const Scale& scale) {
    if (pairs_.empty())
      return fail(cat(source_->name(), ": there are no LoRA matrices in this file, so it is no adapter"));
    Adapter adapter;
    for (const auto& [key, pair] : pairs_) {
      auto made = load(key.first, key.second, pair, scale);
      if (!made) return failed(made);
      adapter.pairs.push_back(std::move(*made));
    }
    adapter.fingerprint = hash_;
    return adapter;
  }

  [[nodiscard]] std::unexpected<Error> wrong(std::string_view tensor, std::string_view why) const {
    return fail(cat(source_->name(), ": tensor ", quote(tensor), " ", why));
  }

 private:
  struct Pair {
    Matrix a, b;
    bool has_a = false, has_b = false;
  };

  Result<AdapterPair> load(Target target, std::uint32_t layer, const Pair& pair, const Scale& scale) {
    if (!pair.has_a || !pair.has_b)
      return wrong(pair.has_a ? pair.a.name : pair.b.name,
                   cat("has no ", pair.has_a ? "B" : "A", " to go with it; the file is incomplete"));
    const auto linear = linear_shape(host_.config, host_.weights, target, layer);
    if (!linear)
      return wrong(pair.a.name, cat("adapts ", module_name(target), " of layer ", layer,
                                    ", which this model does not have; the adapter was made for another model"));
    const std::uint64_t rank = pair.a.shape[0];
    const Shape a{rank, linear->in}, b{linear->out, rank};
    if (rank == 0 || pair.a.shape != a) return mismatch(pair.a, a);
    if (pair.b.shape != b) return mismatch(pair.b, b);
    auto factor = scale({target, layer, false}, static_cast<std::uint32_t>(rank));
    if (!factor) return failed(factor);
    if (!std::isfinite(*factor)) return wrong(pair.a.name, "has a scale that is no number; check lora_alpha");
    AdapterPair made{target, layer, *factor, nullptr, nullptr};
    hash(std::as_bytes(std::span(&*factor, 1)));
    for (const bool second : {false, true}) {
      auto tensor = upload(second ? pair.b : pair.a);
      if (!tensor) return failed(tensor);
      (second ? made.b : made.a) = std::move(*tensor);
    }
    return made;
  }

  std::unexpected<Error> mismatch(const Matrix& found, const Shape& expected) const {
    return wrong(found.name, cat("is ", found.shape.str(), ", expected ", expected.str(),
                                 "; the adapter was made for another model"));
  }

  Result<TensorPtr> upload(const Matrix& m) {
    const DTypeInfo& type = info(m.dtype);
    const std::uint64_t n = m.shape.elements();
    if (type.block_elements > 1 && m.shape.back() % type.block_elements)
      return wrong(m.name, cat("has rows that are no whole blocks of ", type.name));
    std::vector<std::byte> raw(m.shape.rows() * row_bytes(m.dtype, m.shape.back()));
    if (auto ok = source_->read(m.offset, raw); !ok) return failed(ok);
    hash(raw);
    std::vector<float> values(n);
    type.decode(raw.data(), n / type.block_elements, values.data());
    if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
      return wrong(m.name, "holds values that are no finite numbers; the training that made it failed");
    auto tensor = host_.backend.make_tensor({DType::F32, m.shape}, "an adapter");
    if (!tensor) return failed(tensor);
    if (auto ok = host_.backend.write(**tensor, 0, std::as_bytes(std::span(values))); !ok) return failed(ok);
    return std::move(*tensor);
  }

  void hash(std::span<const std::byte> bytes) {  // FNV-1a
    for (const std::byte b : bytes) hash_ = fnv1a(hash_, std::to_integer<std::uint64_t>(b));
  }

  std::shared_ptr<const ByteSource> source_;
  const AdapterHost& host_;
  std::map<std::pair<Target, std::uint32_t>, Pair> pairs_;
  std::uint64_t hash_ = kFnvBasis;
};

// The entry of a pattern that a module meets: its key is the path or the path's end.
template <class T>
std::optional<T> match(const std::vector<std::pair<std::string, T>>& pattern, std::string_view path) {
  path = without_wrappers(path);
  for (const auto& [name, value] : pattern)
    if (const auto key = without_wrappers(name);
        path == key || (path.size() > key.size() && path.ends_with(key) && path[path.size() - key.size() - 1] == '.'))
      return value;
  return {};
}

Result<float> peft_scale(const AdapterSettings& s, const Reader& reader, const AdapterPlace& place,
                         std::uint32_t rank) {
  const std::string path = peft_module_path(place.target, place.layer);
  const std::uint32_t expected = match(s.rank_pattern, path).value_or(s.rank);
  if (rank != expected)
    return reader.wrong(peft_name(place), cat("has rank ", rank, ", but adapter_config.json says ", expected,
                                              "; they do not belong together"));
  return lora_scale(match(s.alpha_pattern, path).value_or(s.alpha), rank, s.rslora);
}

std::string_view why_not(std::string_view name) {
  if (name.find("lora_magnitude_vector") != std::string_view::npos)
    return "belongs to DoRA, which is not supported; train with use_dora off";
  if (name.find("modules_to_save") != std::string_view::npos || name.find("lora_") == std::string_view::npos)
    return "is no LoRA matrix; whole layers (modules_to_save) and biases are not supported, train without them";
  return "adapts a part of the model that is not supported; leave it out of target_modules";
}

Result<float> number(const Safetensors& file, std::string_view key) {
  const std::string* text = file.metadata(key);
  char* end = nullptr;
  const float value = text ? std::strtof(text->c_str(), &end) : 0;
  if (text && end != text->c_str() && *end == 0 && std::isfinite(value)) return value;
  return fail(cat(file.source()->name(), ": there is no adapter_config.json beside it, nor does its metadata have ",
                  quote(key), "; put PEFT's adapter_config.json into the same folder"));
}

Result<> write_matrix(ByteSink& out, const Tensor& tensor, float factor, Backend& backend) {
  std::vector<float> values(tensor.desc().shape.elements());
  if (auto ok = backend.read(tensor, 0, std::as_writable_bytes(std::span(values))); !ok) return ok;
  if (factor != 1)
    for (float& v : values) v *= factor;
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
    return fail(
        "the adapter holds values that are no finite numbers, so it is not written; train it with a smaller "
        "--learning-rate");
  return out.write(std::as_bytes(std::span(values)));
}

}  // namespace

AdapterSettings settings_of(const Adapter& adapter) {
  AdapterSettings s;
  for (const AdapterPair& pair : adapter.pairs) {
    const auto rank = static_cast<std::uint32_t>(pair.a->desc().shape[0]);
    const float alpha = pair.scale * static_cast<float>(rank);
    if (s.rank == 0) s.rank = rank, s.alpha = alpha;  // the first speaks for all that do not differ
    const std::string path = peft_module_path(pair.target, pair.layer);
    if (rank != s.rank) s.rank_pattern.emplace_back(path, rank);
    if (alpha != s.alpha) s.alpha_pattern.emplace_back(path, alpha);
    const std::string module(module_name(pair.target));
    if (std::ranges::find(s.modules, module) == s.modules.end()) s.modules.push_back(module);
  }
  return s;
}

Result<Adapter> read_adapter(const Safetensors& file, const AdapterSettings* settings, const AdapterHost& host) {
  Reader reader(file.source(), host);
  const Shape& table = host.weights.token_embd->desc().shape;
  for (const SafetensorsTensor& t : file.tensors()) {
    if (settings && is_frozen_copy(t.name)) {
      if (t.rank != 2 || t.dims[0] != table[0] || t.dims[1] != table[1])
        return reader.wrong(t.name, cat("is ", list(t.shape()), ", expected ", table.str(),
                                        "; the adapter was made for another model, or for a changed vocabulary"));
      continue;
    }
    const auto place = settings ? place_in_peft(t.name) : place_in_rullama(t.name);
    if (!place) return reader.wrong(t.name, why_not(t.name));
    if (!settings && place->target == Target::embed_tokens)
      return reader.wrong(t.name,
                          "adapts the embeddings in a way of its own; train the adapter again without embed_tokens");
    if (!t.dtype || *t.dtype == DType::U32)
      return reader.wrong(t.name, cat("is ", t.type, ", expected F32, F16 or BF16"));
    Matrix matrix{t.name, *t.dtype, t.rank == 2 ? Shape{t.dims[0], t.dims[1]} : Shape{t.bytes}, t.offset};
    if (auto ok = reader.add(*place, std::move(matrix)); !ok) return failed(ok);
  }
  if (settings)
    return reader.finish(
        [&](const AdapterPlace& place, std::uint32_t rank) { return peft_scale(*settings, reader, place, rank); });
  const auto alpha = number(file, "alpha");
  if (!alpha) return std::unexpected(alpha.error());
  return reader.finish(
      [&](const AdapterPlace&, std::uint32_t rank) -> Result<float> { return lora_scale(*alpha, rank, false); });
}

Result<Adapter> read_adapter(const Gguf& file, const AdapterHost& host) {
  const std::string& name = file.source()->name();
  const auto type = file.get_string("general.type"), kind = file.get_string("adapter.type");
  if (!type || *type != "adapter" || !kind || *kind != "lora")
    return fail(cat(name, ": this GGUF file is no LoRA adapter (its key 'general.type' is not 'adapter')"));
  const auto alpha = file.get_f32("adapter.lora.alpha");
  if (!alpha) return std::unexpected(Error{cat(name, ": ", alpha.error().message), alpha.error().code});
  Reader reader(file.source(), host);
  for (const GgufTensor& t : file.tensors()) {
    const auto place = place_in_gguf(t.name);
    if (!place || place->target == Target::embed_tokens) return reader.wrong(t.name, why_not(t.name));
    if (!t.dtype || *t.dtype == DType::U32)
      return reader.wrong(t.name, cat("is ", t.type_name(), ", expected F32, F16 or BF16"));
    if (auto ok = reader.add(*place, {std::string(t.name), *t.dtype, row_major(t), t.offset}); !ok) return failed(ok);
  }
  return reader.finish(
      [&](const AdapterPlace&, std::uint32_t rank) -> Result<float> { return lora_scale(*alpha, rank, false); });
}

Result<> write_adapter(ByteSink& sink, const Adapter& adapter, const AdapterSettings& settings, Backend& backend) {
  SafetensorsWriter writer;
  writer.set_metadata("format", "pt");
  writer.set_metadata("adapter_config", settings_to_json(settings));
  std::vector<const Tensor*> order;
  for (const AdapterPair& pair : adapter.pairs) {
    for (const bool b : {false, true}) {
      const Tensor& tensor = b ? *pair.b : *pair.a;
      const std::array<std::uint64_t, 2> shape{tensor.desc().shape[0], tensor.desc().shape[1]};
      if (auto ok = writer.add_tensor(peft_name({pair.target, pair.layer, b}), DType::F32, shape); !ok) return ok;
      order.push_back(&tensor);
    }
  }
  return writer.write(sink, [&](std::size_t i, ByteSink& out) { return write_matrix(out, *order[i], 1, backend); });
}

Result<> write_adapter_gguf(ByteSink& sink, const Adapter& adapter, const AdapterHost& host) {
  if (adapter.pairs.empty()) return fail("the adapter has no matrices");
  GgufWriter writer;
  // One alpha for all: the first pair's. Where another pair's scale differs, its B is scaled.
  const auto rank_of = [](const AdapterPair& p) { return static_cast<float>(p.a->desc().shape[0]); };
  const float alpha = adapter.pairs[0].scale * rank_of(adapter.pairs[0]);
  writer.set("general.type", "adapter");
  writer.set("general.architecture", host.config.arch == GemmaArch::gemma4 ? "gemma4" : "gemma3");
  writer.set("adapter.type", "lora");
  writer.set("adapter.lora.alpha", alpha);
  struct Part {
    const Tensor* tensor;
    float factor;
  };
  std::vector<Part> order;
  for (const AdapterPair& pair : adapter.pairs) {
    const bool tied_head = pair.target == Target::lm_head && host.weights.output == host.weights.token_embd;
    if (pair.target == Target::embed_tokens || pair.target == Target::per_layer_model || tied_head)
      return fail(ErrorCode::unsupported, cat("llama.cpp does not apply an adapter of ", module_name(pair.target),
                                              " to this model; train "
                                              "without that target, or merge it"));
    for (const bool b : {false, true}) {
      const Tensor& tensor = b ? *pair.b : *pair.a;
      const Shape& shape = tensor.desc().shape;
      const std::array<std::uint64_t, 2> dims{shape[1], shape[0]};
      if (auto ok = writer.add_tensor(gguf_name({pair.target, pair.layer, b}), dims, info(DType::F32).ggml_id); !ok)
        return ok;
      order.push_back({&tensor, b && alpha != 0 ? pair.scale * rank_of(pair) / alpha : 1});
    }
  }
  return writer.write(sink, [&](std::size_t i, ByteSink& out) {
    return write_matrix(out, *order[i].tensor, order[i].factor, host.backend);
  });
}

}  // namespace rullama
