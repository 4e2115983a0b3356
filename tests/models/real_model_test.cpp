// Gemma 3 270M (Q4_K_M) against what another engine computed in f32 with the same weights, decoded exactly. The file is
// not part of the project: without it in the model cache the tests are skipped.
#include "support/real_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "rullama/rullama.h"
#include "support/golden.h"

namespace rullama {
namespace {

using Json = nlohmann::json;

double log_sum_exp(std::span<const float> logits) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - most);
  return most + std::log(sum);
}

class RealModel : public testing::Test {
 protected:
  void SetUp() override {
    const auto path = test::real_model();
    if (!path) GTEST_SKIP() << test::kNoRealModel;
    auto model = Model::load(*path, {.device = "cpu"});
    ASSERT_TRUE(model) << model.error().message;
    model_.emplace(std::move(*model));
    reference_ = Json::parse(test::file_text(test::data_path("expected/gemma3-270m.json")));
  }
  Session session(bool exact) {
    auto made = model_->session({.kv_type = KvType::f32, .exact = exact});
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  // Mean negative log-likelihood of the reference's text.
  double negative_log_likelihood(bool exact) {
    Session s = session(exact);
    const auto ids = *model_->tokenize(reference_["perplexity"]["text"].get<std::string>());
    EXPECT_EQ(ids.size(), reference_["perplexity"]["scored"].get<std::size_t>() + 1);
    double sum = 0;
    const auto done = s.append(ids, [&](std::uint32_t position, std::span<const float> logits) {
      if (position + 1 < ids.size()) sum += log_sum_exp(logits) - logits[ids[position + 1]];
      return true;
    });
    EXPECT_TRUE(done) << done.error().message;
    return sum / static_cast<double>(ids.size() - 1);
  }

  std::optional<Model> model_;
  Json reference_;
};

TEST_F(RealModel, LogProbabilitiesOfTheBestTokens) {
  for (const bool exact : {true, false}) {
    Session s = session(exact);
    for (const Json& p : reference_["prompts"]) {
      ASSERT_TRUE(s.set(p["ids"].get<std::vector<Token>>()));
      const auto logits = s.logits();
      ASSERT_TRUE(logits) << logits.error().message;
      const double sum = log_sum_exp(*logits);
      for (const Json& t : p["top"])
        EXPECT_NEAR((*logits)[t[0].get<Token>()] - sum, t[1].get<double>(), exact ? 1e-2 : 2e-2)
            << p["id"] << ", token " << t[0] << (exact ? ", exact" : ", fast");
    }
  }
}

// Up to the first place where the two best tokens are nearly as likely.
TEST_F(RealModel, GreedyContinuations) {
  Session s = session(true);
  for (const Json& p : reference_["prompts"]) {
    const auto expected = p["greedy_ids"].get<std::vector<Token>>();
    const auto margins = p["greedy_margins"].get<std::vector<double>>();
    const auto near = std::ranges::find_if(margins, [](double m) { return m < 0.02; });
    const auto sure = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(near - margins.begin(), 32));
    GenerateOptions how{.max_tokens = sure, .ignore_eos = true};
    how.sampling.temperature = 0;
    const auto found = s.generate(p["ids"].get<std::vector<Token>>(), how);
    ASSERT_TRUE(found) << found.error().message;
    const std::size_t n = std::min<std::size_t>(sure, expected.size());
    EXPECT_EQ(std::vector<Token>(found->tokens.begin(), found->tokens.begin() + static_cast<std::ptrdiff_t>(n)),
              std::vector<Token>(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(n)))
        << p["id"];
  }
}

TEST_F(RealModel, Perplexity) {
  const double expected = reference_["perplexity"]["value"].get<double>();
  EXPECT_NEAR(std::exp(negative_log_likelihood(true)) / expected, 1, 0.005);
  EXPECT_NEAR(std::exp(negative_log_likelihood(false)) / expected, 1, 0.02);
}

}  // namespace
}  // namespace rullama
