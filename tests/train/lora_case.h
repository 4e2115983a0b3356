// What torch computed for adapters on the tiny models: tests/data/lora/NAME.{json,safetensors}.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "lora/adapter_names.h"
#include "support/model.h"
#include "train/trainer.h"

namespace rullama::test {

struct LoraCase {
  std::string name, base;  // base: below tests/data/models, without .gguf
  float scale = 1;
  std::vector<Token> tokens;
  std::size_t first_target = 0;
  double loss = 0, clip = 0;
  std::vector<double> losses, clip_losses, grad_norms;
  std::map<std::string, std::vector<float>> values;  // "init.base_model.model....lora_A.weight", "grad...."

  [[nodiscard]] std::vector<Token> labels() const {
    std::vector<Token> all(tokens.begin(), tokens.end());
    std::fill_n(all.begin(), first_target, TrainBatch::kNoTarget);
    return all;
  }
  [[nodiscard]] TrainBatch batch() const {
    TrainBatch b;
    b.add(tokens, labels());
    return b;
  }
};

inline LoraCase read_lora_case(const std::string& name) {
  const auto json = nlohmann::json::parse(file_text(data_path("lora/" + name + ".json")));
  LoraCase c;
  c.name = name;
  const std::string file = json.at("base");  // "models/NAME.gguf"
  c.base = file.substr(7, file.size() - 12);
  c.scale = json.at("scale");
  c.tokens = json.at("tokens").get<std::vector<Token>>();
  c.first_target = json.at("first_target_position");
  c.loss = json.at("loss");
  c.clip = json.at("clip_max_norm");
  c.losses = json.at("losses").get<std::vector<double>>();
  c.clip_losses = json.at("clip_losses").get<std::vector<double>>();
  c.grad_norms = json.at("grad_norms").get<std::vector<double>>();
  c.values = read_f32(data_path("lora/" + name + ".safetensors"));
  return c;
}

// The adapter with the case's start.
inline std::shared_ptr<Adapter> case_adapter(const LoraCase& c, const TextModel& model) {
  auto adapter = std::make_shared<Adapter>();
  constexpr auto last = static_cast<std::uint8_t>(Target::embed_tokens);
  for (std::uint8_t t = 0; t <= last; t++) {
    for (std::uint32_t layer = 0; layer < model.config.n_layers(); layer++) {
      AdapterPair pair{static_cast<Target>(t), layer, c.scale, nullptr, nullptr};
      if (layer > 0 && (pair.target == Target::lm_head || pair.target == Target::embed_tokens)) continue;
      const auto a = c.values.find("init." + peft_name({pair.target, layer, false})),
                 b = c.values.find("init." + peft_name({pair.target, layer, true}));
      if (a == c.values.end() || b == c.values.end()) continue;
      const auto shape = linear_shape(model.config, model.weights, pair.target, layer);
      if (!shape) {
        ADD_FAILURE() << c.name << " has an adapter for " << peft_name({pair.target, layer, false})
                      << ", the model does not";
        continue;
      }
      const std::uint64_t rank = a->second.size() / shape->in;
      const auto fill = [&](Shape s, const std::vector<float>& values) {
        auto tensor = model.backend->make_tensor({DType::F32, s}, "an adapter");
        EXPECT_TRUE(tensor && model.backend->write(**tensor, 0, std::as_bytes(std::span(values))));
        return *tensor;
      };
      pair.a = fill({rank, shape->in}, a->second);
      pair.b = fill({shape->out, rank}, b->second);
      adapter->pairs.push_back(pair);
    }
  }
  return adapter;
}

}  // namespace rullama::test
