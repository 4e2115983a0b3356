#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "text/text_support.h"

namespace rullama {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

const Sampling open_settings = {.top_k = 0, .top_p = 1};  // nothing is cut off

TEST(Sampler, KeepsTheSameTokensAsTheReferences) {
  for (const auto& c : test::read_cases("sampling.json")) {
    const auto& s = c["settings"];
    Sampling settings;
    settings.temperature = s["temperature"];
    settings.top_k = s["top_k"];
    settings.top_p = s["top_p"];
    settings.min_p = s["min_p"];
    settings.repeat_penalty = s["repeat_penalty"];
    settings.frequency_penalty = s["frequency_penalty"];
    settings.presence_penalty = s["presence_penalty"];
    for (const bool first : {true, false}) {
      settings.temperature_first = first;
      Sampler sampler(settings);
      for (const Token t : s["history"].get<std::vector<Token>>()) sampler.accept(t);
      const auto& expected = c[first ? "temperature_first" : "temperature_last"];
      const auto kept = sampler.distribution(c["logits"].get<std::vector<float>>());
      ASSERT_EQ(kept.size(), expected["ids"].size()) << s << first;
      for (std::size_t i = 0; i < kept.size(); i++) {
        EXPECT_EQ(kept[i].id, expected["ids"][i].get<Token>()) << s << first << " place " << i;
        EXPECT_NEAR(kept[i].probability, expected["probs"][i].get<double>(), 1e-6) << s << first << " place " << i;
      }
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  for (const float temperature : {0.0f, -1.0f}) {
    Sampler sampler({.temperature = temperature});
    EXPECT_EQ(sampler.sample(std::vector<float>{1, 5, 2, 5}), Token{1});
    EXPECT_EQ(sampler.sample(std::vector<float>{nan, -infinity, -3, nan}), Token{2});
    EXPECT_EQ(sampler.sample(std::vector<float>{0, infinity, infinity}), Token{1});
  }
}

// The best logits, as many as the sampler asks for, give what all of them give: ties, cuts and draws.
TEST(Sampler, TheDecisiveLogitsAreEnough) {
  std::mt19937 random(7);
  const Token suppressed[] = {3, 50, 51, 200};
  for (Sampling s : {Sampling{.temperature = 0}, Sampling{}, Sampling{.top_k = 1}, Sampling{.top_k = 5, .top_p = 1},
                     Sampling{.temperature = 2, .min_p = 0.2f, .temperature_first = true},
                     Sampling{.temperature = 0.4f, .top_k = 64, .top_p = 0.7f}}) {
    s.seed = 11;
    Sampler from_all(s, suppressed), from_best(s, suppressed);
    const auto decisive = from_best.decisive();
    ASSERT_TRUE(decisive.has_value());
    for (int round = 0; round < 200; round++) {
      std::vector<float> logits(300);
      for (float& l : logits) l = static_cast<float>(random() % 40) / 4;
      std::vector<RankedLogit> ranked;
      for (Token id = 0; id < logits.size(); id++)
        if (std::ranges::count(suppressed, id) == 0) ranked.push_back({logits[id], id});
      std::ranges::sort(ranked, [](const RankedLogit& a, const RankedLogit& b) {
        return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
      });
      ranked.resize(*decisive);
      ASSERT_EQ(from_best.sample_best(ranked).value(), from_all.sample(logits).value())
          << "round " << round << ", top-k " << s.top_k << ", temperature " << s.temperature;
    }
  }
}

TEST(Sampler, AllLogitsAreDecisiveWithPenaltiesAndWithoutTopK) {
  EXPECT_EQ(Sampler({.top_k = 0}).decisive(), std::nullopt);
  EXPECT_EQ(Sampler({.temperature = 0, .top_k = 0}).decisive(), 1u);
  EXPECT_EQ(Sampler({.repeat_penalty = 1.1f}).decisive(), std::nullopt);
  EXPECT_EQ(Sampler({.presence_penalty = 1}).decisive(), std::nullopt);
  EXPECT_EQ(Sampler({.temperature = 0, .frequency_penalty = -1}).decisive(), std::nullopt);
  EXPECT_EQ(Sampler({.repeat_penalty = 1.1f, .repeat_last_n = 0}).decisive(), 64u);
}

TEST(Sampler, ForbiddenTokensAreNeverChosen) {
  const std::vector<float> logits = {9, 8, 7, 6};
  const Token suppressed[] = {0, 77};
  Sampler sampler({.temperature = 0}, suppressed);
  EXPECT_EQ(sampler.sample(logits), Token{1});
  const std::uint32_t mask[] = {0b1100};
  EXPECT_EQ(sampler.sample(logits, mask), Token{2});
  const std::uint32_t only_suppressed[] = {0b0001};
  EXPECT_FALSE(sampler.sample(logits, only_suppressed));
  const std::vector<float> long_logits(40, 1.0f);
  const std::uint32_t short_mask[] = {1u << 31};
  EXPECT_EQ(sampler.sample(long_logits, short_mask), Token{31});
}

TEST(Sampler, WithoutAUsableLogitThereIsAnError) {
  Sampler sampler({});
  EXPECT_FALSE(sampler.sample(std::vector<float>{nan, nan}));
  EXPECT_FALSE(sampler.sample(std::vector<float>{-infinity}));
  EXPECT_FALSE(sampler.sample({}));
}

TEST(Sampler, PenaltiesLookBackOnTheWindowOnly) {
  Sampler sampler({.temperature = 0, .presence_penalty = 10, .repeat_last_n = 2});
  const std::vector<float> logits = {3, 2, 1, 0};
  for (const Token t : {0u, 0u, 1u}) sampler.accept(t);
  EXPECT_EQ(sampler.sample(logits), Token{2}) << "the window holds 0 and 1";
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(logits), Token{0}) << "0 has left the window";
  sampler.forget();
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits), Token{1});
  Sampler without({.temperature = 0, .presence_penalty = 10, .repeat_last_n = 0});
  without.accept(0);
  EXPECT_EQ(without.sample(logits), Token{0});
}

TEST(Sampler, DrawsFollowTheDistribution) {
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f), -infinity};
  Sampler sampler(open_settings);
  std::vector<double> counts(4);
  const int draws = 20000;
  for (int i = 0; i < draws; i++) counts[sampler.sample(logits).value()]++;
  const double expected[] = {0.125, 0.25, 0.625, 0};
  for (int i = 0; i < 4; i++) EXPECT_NEAR(counts[i] / draws, expected[i], 0.015) << "token " << i;
}

TEST(Sampler, TheSeedDecides) {
  // The first numbers of xoshiro256** seeded with 0 through splitmix64, from its authors' program.
  RandomStream random(0);
  EXPECT_EQ(random.next(), 0x99ec5f36cb75f2b4u);
  EXPECT_EQ(random.next(), 0xbf6e1f784956452au);
  const std::vector<float> logits(1000, 0.0f);
  const auto draw = [&](std::uint64_t seed) {
    Sampling settings = open_settings;
    settings.seed = seed;
    Sampler sampler(settings);
    std::vector<Token> ids;
    for (int i = 0; i < 20; i++) ids.push_back(sampler.sample(logits).value());
    return ids;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Sampler, LargeVocabulariesAgainstASlowReference) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(50000);
  for (float& l : logits) l = std::round(normal(random) * 64) / 64;  // with many equals
  for (const Sampling& settings :
       {Sampling{.top_k = 64, .top_p = 0.95f}, Sampling{.top_k = 5000, .top_p = 1}, Sampling{.top_k = 0, .top_p = 0.9f},
        Sampling{.top_k = 0, .top_p = 0.999f}, Sampling{.top_k = 0, .top_p = 1, .min_p = 0.01f}}) {
    std::vector<Token> order(logits.size());
    for (Token i = 0; i < order.size(); i++) order[i] = i;
    std::ranges::sort(order, {}, [&](Token t) { return std::pair(-logits[t], t); });
    if (settings.top_k) order.resize(settings.top_k);
    const auto weight = [&](Token t) { return std::exp(static_cast<double>(logits[t]) - logits[order[0]]); };
    double total = 0, sum = 0;
    for (const Token t : order) total += weight(t);
    std::size_t kept = 0;
    while (kept < order.size() && (settings.top_p == 1 || kept == 0 || sum < settings.top_p * total))
      sum += weight(order[kept++]);
    while (weight(order[kept - 1]) < settings.min_p) kept--;
    Sampler sampler(settings);
    const auto got = sampler.distribution(logits);
    ASSERT_EQ(got.size(), kept);
    for (std::size_t i = 0; i < kept; i++) ASSERT_EQ(got[i].id, order[i]) << "place " << i;
  }
}

TEST(Sampler, SettingsOutOfRangeAreNamed) {
  EXPECT_TRUE(check(Sampling{}));
  const struct {
    Sampling settings;
    const char* name;
  } cases[] = {
      {{.temperature = nan}, "temperature"},
      {{.temperature = infinity}, "temperature"},
      {{.top_p = 1.5f}, "top-p"},
      {{.top_p = nan}, "top-p"},
      {{.min_p = -0.1f}, "min-p"},
      {{.repeat_penalty = 0}, "repeat penalty"},
      {{.presence_penalty = infinity}, "presence"},
      {{.frequency_penalty = nan}, "frequency"},
  };
  for (const auto& c : cases) {
    const auto ok = check(c.settings);
    ASSERT_FALSE(ok) << c.name;
    EXPECT_NE(ok.error().message.find(c.name), std::string::npos) << ok.error().message;
  }
}

TEST(Sampler, AFilesDefaultsReplaceOnlyWhatTheyName) {
  Sampling settings;
  SamplingDefaults{
      .temperature = 0.5f, .top_p = {}, .min_p = {}, .repeat_penalty = {}, .top_k = 7u, .repeat_last_n = {}}
      .apply_to(settings);
  EXPECT_EQ(settings.temperature, 0.5f);
  EXPECT_EQ(settings.top_k, 7u);
  EXPECT_EQ(settings.top_p, 0.95f);
}

}  // namespace
}  // namespace rullama
