// The library's finetune(): Gemma 3 270M against torch and peft on twelve invented facts.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/impl.h"
#include "host/native/file_writer.h"
#include "lora/adapter_file.h"
#include "rullama/rullama.h"
#include "support/golden.h"
#include "support/real_model.h"
#include "train/examples.h"
#include "train/lora_setup.h"
#include "train/trainer.h"

namespace rullama::test {
namespace {

using Json = nlohmann::json;

std::uint64_t splitmix64(std::uint64_t s) {
  std::uint64_t z = s + 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

class RealTraining : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = real_model();
    if (!path) GTEST_SKIP() << kNoRealModel;
    auto model = Model::load(*path, {.device = "cpu"});
    ASSERT_TRUE(model) << model.error().message;
    model_.emplace(std::move(*model));
    reference_ = Json::parse(file_text(data_path("finetune/reference.json")));
    folder_ = std::filesystem::temp_directory_path() / ("rullama-finetune-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  // The reference's start, as a file.
  std::string start() {
    const TextModel& text = *model_->impl().text;
    LoraSetup setup;
    setup.rank = 8;
    setup.alpha = 16;
    auto adapter = make_adapter(text, setup);
    EXPECT_TRUE(adapter) << adapter.error().message;
    for (const AdapterPair& pair : adapter->pairs) {
      const std::uint64_t number = 7ull * pair.layer + static_cast<std::uint64_t>(pair.target);
      std::vector<float> a(pair.a->desc().shape.elements());
      const double bound = 1 / std::sqrt(static_cast<double>(pair.a->desc().shape[1]));
      for (std::size_t n = 0; n < a.size(); n++) {
        const auto bits = splitmix64((1ull << 56 | number << 32) + n) >> 40;
        a[n] = static_cast<float>((2 * static_cast<double>(bits) * 0x1p-24 - 1) * bound);
      }
      EXPECT_TRUE(text.backend->write(*pair.a, 0, std::as_bytes(std::span(a))));
    }
    const std::string path = (folder_ / "start.safetensors").string();
    auto file = FileWriter::create(path);
    EXPECT_TRUE(write_adapter(*file, *adapter, settings_of(*adapter), *text.backend));
    EXPECT_TRUE(file->commit());
    return path;
  }

  std::optional<Model> model_;
  Json reference_;
  std::filesystem::path folder_;
};

TEST_F(RealTraining, TheExamplesAreTheReferences) {
  for (const auto& [file, kind] : {std::pair{"facts.jsonl", "chat"}, {"facts-completion.jsonl", "completion"}}) {
    const auto data = examples_from_jsonl(file_text(data_path(std::string("finetune/") + file)), file,
                                          model_->tokenizer(), {.format = ChatFormat::gemma3});
    ASSERT_TRUE(data) << data.error().message;
    const Json& expected = reference_["token_ids"][kind];
    ASSERT_EQ(data->examples.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); i++) {
      const auto prompt = expected[i]["prompt"].get<std::vector<Token>>(),
                 answer = expected[i]["answer"].get<std::vector<Token>>();
      std::vector<Token> tokens = prompt, labels(prompt.size(), TrainBatch::kNoTarget);
      tokens.insert(tokens.end(), answer.begin(), answer.end());
      labels.insert(labels.end(), answer.begin(), answer.end());
      EXPECT_EQ(data->examples[i].tokens, tokens) << file << ", line " << i + 1;
      EXPECT_EQ(data->examples[i].labels, labels) << file << ", line " << i + 1;
    }
  }
}

TEST_F(RealTraining, TheFirstStepsLoseWhatTorchLoses) {
  const std::string init = start();
  for (const Json& run : reference_["runs"]) {
    const bool chat = run["format"] == "chat";
    FinetuneOptions o;
    o.data = data_path(chat ? "finetune/facts.jsonl" : "finetune/facts-completion.jsonl");
    o.output = (folder_ / "out").string();
    o.overwrite = true;
    o.init_adapter = init;
    o.learning_rate = run["learning_rate"];
    o.lr_scheduler = "constant";
    o.max_steps = 3;
    o.max_grad_norm = 0;
    o.shuffle = false;
    const auto result = finetune(*model_, o);
    ASSERT_TRUE(result) << result.error().message;
    ASSERT_EQ(result->history.size(), o.max_steps);
    for (std::size_t step = 0; step < o.max_steps; step++) {
      const double loss = run["losses"][step], norm = run["gradient_norms"][step];
      const std::string where =
          run["format"].get<std::string>() + " at " + run["learning_rate"].dump() + ", step " + std::to_string(step);
      EXPECT_NEAR(result->history[step].loss, loss, 1e-3) << where;
      EXPECT_NEAR(result->history[step].grad_norm, norm, 2e-3 * norm) << where;
    }
  }
}

}  // namespace
}  // namespace rullama::test
