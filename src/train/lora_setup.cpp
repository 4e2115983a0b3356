#include "train/lora_setup.h"

#include <cmath>

#include "base/random.h"
#include "base/text.h"

namespace rullama {
namespace {

// Makes a tensor and fills it with what `draw` gives.
template <class Draw>
Result<TensorPtr> filled(Backend& backend, Shape shape, std::string_view what, Draw&& draw) {
  auto tensor = backend.make_tensor({DType::F32, shape}, what);
  if (!tensor) return failed(tensor);
  std::vector<float> values(shape.elements());
  for (float& v : values) v = static_cast<float>(draw());
  if (auto ok = backend.write(**tensor, 0, std::as_bytes(std::span(values))); !ok) return failed(ok);
  return std::move(*tensor);
}

bool once_in_a_model(Target target) {
  return target == Target::embed_tokens || target == Target::lm_head || target == Target::per_layer_model;
}

}  // namespace

Result<Adapter> make_adapter(const TextModel& model, const LoraSetup& setup) {
  using enum Target;
  if (setup.rank == 0 || setup.rank > 4096) return fail(cat("a LoRA rank of ", setup.rank, ", expected 1 to 4096"));
  const std::vector<Target> targets =
      setup.targets.empty() ? std::vector<Target>{q, k, v, o, gate, up, down} : setup.targets;
  Adapter adapter;
  Random random(setup.seed);
  for (const Target target : targets) {
    const std::uint32_t layers = once_in_a_model(target) ? 1 : model.config.n_layers();
    bool found = false;
    for (std::uint32_t layer = 0; layer < layers; layer++) {
      const auto linear = linear_shape(model.config, model.weights, target, layer);
      if (!linear) continue;
      found = true;
      const double bound = target == embed_tokens ? 0 : 1 / std::sqrt(static_cast<double>(linear->in));
      const double deviation = target == embed_tokens ? 1 : 0;
      const std::string what = cat("the adapter of ", module_name(target));
      auto a = filled(*model.backend, {setup.rank, linear->in}, what,
                      [&] { return bound > 0 ? bound * (2 * random.uniform() - 1) : 0; });
      if (!a) return failed(a);
      auto b =
          filled(*model.backend, {linear->out, setup.rank}, what, [&] { return deviation > 0 ? random.normal() : 0; });
      if (!b) return failed(b);
      adapter.pairs.push_back({target, layer, lora_scale(setup.alpha, setup.rank, setup.rslora), *a, *b});
    }
    if (!found)
      return fail(cat("target module ", quote(module_name(target)),
                      " is not part of this model; leave it out of --target-modules"));
  }
  return adapter;
}

}  // namespace rullama
