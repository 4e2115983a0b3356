// The tiny models against HuggingFace transformers on the decoded weights: hidden states, logits, greedy tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "models/gemma/forward.h"
#include "runtime/sequence.h"
#include "support/golden.h"
#include "support/model.h"

namespace rullama::test {
namespace {

constexpr double kLogits = 2e-3, kStream = 5e-4;

struct Case {
  std::string model;
  Where where;
};

class Parity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    golden_ = read_golden(GetParam().model);
    model_ = load_golden_model(GetParam().model, GetParam().where);
    if (!model_) GTEST_SKIP() << "no GPU driver";
  }
  Golden golden_;
  std::shared_ptr<TextModel> model_;
};

// Every intermediate that the reference recorded, without a cache.
TEST_P(Parity, HiddenStates) {
  for (const GoldenPrompt& prompt : golden_.prompts) {
    SCOPED_TRACE(prompt.id);
    const std::uint64_t rows = prompt.tokens.size();
    Graph graph;
    ForwardInput in;
    in.tokens = graph.input("tokens", {DType::U32, {rows}});
    in.positions = graph.input("positions", {DType::U32, {rows}});
    std::map<std::string, Var> seen;
    ForwardOptions options;
    options.logit_rows = UINT32_MAX;
    options.observe = [&](std::string_view name, Var v) {
      const std::string full = prompt.id + "." + std::string(name);
      if (golden_.values.contains(full)) seen.emplace(full, graph.keep(v));
    };
    const ForwardOutput out = gemma_forward(graph, model_->config, model_->weights, in, options);
    graph.keep(out.logits);
    auto program = model_->backend->compile(graph, Precision::exact);
    ASSERT_TRUE(program.has_value()) << program.error().message;
    std::vector<std::uint32_t> positions(rows);
    for (std::uint32_t i = 0; i < rows; i++) positions[i] = i;
    ASSERT_TRUE((*program)->write(in.tokens, std::as_bytes(std::span(prompt.tokens))));
    ASSERT_TRUE((*program)->write(in.positions, std::as_bytes(std::span(positions))));
    auto ran = (*program)->run();
    ASSERT_TRUE(ran.has_value()) << ran.error().message;

    std::vector<float> values(out.logits.shape().elements());
    ASSERT_TRUE((*program)->read(out.logits, std::as_writable_bytes(std::span(values))));
    const auto& logits = golden_.values.at(prompt.id + ".logits");
    const std::size_t skip = prompt.first_logit_row * model_->config.vocab;
    expect_close(logits, std::span(values).subspan(skip), kLogits, "logits");
    for (const auto& [name, v] : seen) {
      std::vector<float> found(v.shape().elements());
      ASSERT_TRUE((*program)->read(v, std::as_writable_bytes(std::span(found))));
      expect_close(golden_.values.at(name), found, kStream, name);
    }
    // Probabilities over all experts are inside the router op, whose own cases test them.
    const auto recorded = std::count_if(golden_.values.begin(), golden_.values.end(), [&](const auto& entry) {
      return entry.first.starts_with(prompt.id + ".") && !entry.first.ends_with(".router_probs");
    });
    EXPECT_EQ(seen.size() + 1, static_cast<std::size_t>(recorded)) << "some recorded values were not compared";
  }
}

std::uint32_t best(std::span<const float> logits) {
  return static_cast<std::uint32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// 32 tokens with the cache, the prompt cut in several ways; every cut gives the reference's tokens and the same logits.
TEST_P(Parity, GreedyInAnyChunks) {
  for (const GoldenPrompt& prompt : golden_.prompts) {
    std::vector<float> first_logits;
    for (const std::uint32_t batch : {512u, 1u, 7u, 16u, 17u}) {
      SCOPED_TRACE(prompt.id + " in batches of " + std::to_string(batch));
      auto made = Sequence::make(model_, Precision::exact, 160, batch, DType::F32);
      ASSERT_TRUE(made.has_value()) << made.error().message;
      Sequence& sequence = **made;
      auto ok = sequence.append(prompt.tokens);
      ASSERT_TRUE(ok.has_value()) << ok.error().message;
      const auto logits = sequence.logits();
      ASSERT_TRUE(logits.has_value());
      const auto& expected = golden_.values.at(prompt.id + ".logits");
      expect_close(std::span(expected).last(model_->config.vocab), *logits, kLogits, "last logits");
      if (batch == 512) first_logits.assign(logits->begin(), logits->end());
      expect_close(first_logits, *logits, 5e-4, "logits of another cut");
      if (batch != 512 && batch != 7) continue;
      for (std::size_t i = 0; i < prompt.greedy.size(); i++) {
        if (prompt.greedy_margin[i] < 1e-3) break;
        const auto now = sequence.logits();
        ASSERT_TRUE(now.has_value()) << now.error().message;
        const std::uint32_t token = best(*now);
        ASSERT_EQ(token, prompt.greedy[i]) << "greedy token " << i << ", margin " << prompt.greedy_margin[i];
        auto more = sequence.append(std::span(&token, 1));
        ASSERT_TRUE(more.has_value()) << more.error().message;
      }
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Where where : {Where::cpu, Where::gpu})
    for (const std::string& name : golden_names()) all.push_back({name, where});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tiny, Parity, testing::ValuesIn(cases()), [](const auto& test) {
  std::string name = test.param.model + "_" + place_name(test.param.where);
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace rullama::test
