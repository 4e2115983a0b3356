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
  struct Place {
    Target target;
    std::uint32_t layer;
    LinearShape linear;
  };
  std::vector<Place> places;
  std::uint64_t parameters = 0;
  for (const Target target : targets) {
    const std::size_t before = places.size();
    const std::uint32_t layers = once_in_a_model(target) ? 1 : model.config.n_layers();
    for (std::uint32_t layer = 0; layer < layers; layer++) {
      const auto linear = linear_shape(model.config, model.weights, target, layer);
      if (!linear) continue;
      places.push_back({target, layer, *linear});
      parameters += setup.rank * (linear->in + linear->out);
    }
    if (places.size() == before)
      return fail(cat("target module ", quote(module_name(target)),
                      " is not part of this model; leave it out of --target-modules"));
  }
  Adapter adapter;
  Random random(setup.seed);
  const auto failed_for = [&](const Error& why) {
    return std::unexpected(why.code == ErrorCode::out_of_memory ? too_many_parameters(parameters, why) : why);
  };
  for (const auto& [target, layer, linear] : places) {
    const double bound = target == embed_tokens ? 0 : 1 / std::sqrt(static_cast<double>(linear.in));
    const double deviation = target == embed_tokens ? 1 : 0;
    const std::string what = cat("the adapter of ", module_name(target));
    auto a = filled(*model.backend, {setup.rank, linear.in}, what,
                    [&] { return bound > 0 ? bound * (2 * random.uniform() - 1) : 0; });
    if (!a) return failed_for(a.error());
    auto b =
        filled(*model.backend, {linear.out, setup.rank}, what, [&] { return deviation > 0 ? random.normal() : 0; });
    if (!b) return failed_for(b.error());
    adapter.pairs.push_back({target, layer, lora_scale(setup.alpha, setup.rank, setup.rslora), *a, *b});
  }
  return adapter;
}

Error too_many_parameters(std::uint64_t parameters, const Error& why) {
  constexpr std::uint64_t kBytes = 4 * sizeof(float);  // each with its gradient and the optimiser's two moments
  return {cat("training ", parameters, " parameters takes ", bytes_text(static_cast<double>(kBytes * parameters)),
              " with their gradients and the optimiser's state, which the device does not have; use a smaller --lora-r "
              "or fewer --target-modules (",
              why.message, ")"),
          why.code};
}

}  // namespace rullama
