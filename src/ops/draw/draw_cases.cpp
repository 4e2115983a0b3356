#include <bit>
#include <cmath>

#include "base/text.h"
#include "ops/draw/draw.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

// Rule number i of `rules`, spread over the numbers of a tensor.
Fill rules(std::vector<DrawRule> rules) {
  return Fill::function([rules = std::move(rules)](auto i) {
    const DrawRule& r = rules[i / kDrawRuleNumbers % rules.size()];
    const float numbers[] = {r.uniform, r.temperature, r.truncation_temperature, r.top_p, r.min_p, r.count};
    return static_cast<double>(numbers[i % kDrawRuleNumbers]);
  });
}

}  // namespace

std::vector<OpCase> draw_cases() {
  std::vector<OpCase> cases;
  // Logits of each row fall by `slope` from one place to the next, places from one another by 3.
  const auto add = [&](std::string_view what, std::uint64_t rows, std::uint64_t k, double slope, std::uint64_t barred,
                       std::vector<DrawRule> of_rows, CaseUse use = CaseUse::test, bool token = false) {
    OpCase c;
    c.op = "draw";
    c.format = "U32";
    c.shape = cat("rows=", rows, " k=", k, " barred=", barred, " ", what);
    c.inputs = {
        {"best", {DType::U32, {rows, k, 2}}, Fill::function([=](auto i) {
           const auto at = i / 2 % k;
           const float logit = static_cast<float>(5 - slope * static_cast<double>(at));
           return static_cast<double>(i % 2 ? 3 * at + 1 : std::bit_cast<std::uint32_t>(logit));
         })},
        {"barred", {DType::U32, {barred}}, Fill::function([](auto i) { return 3.0 * static_cast<double>(i) + 1; })},
        {"rules", {DType::F32, {rows, kDrawRuleNumbers}}, rules(std::move(of_rows))}};
    if (token) {
      c.shape += " to a token";
      c.inputs.push_back({"token", {DType::U32, {rows}}, Fill::function([](auto) { return 7.0; }), true, true});
    }
    c.build = [token](Graph&, std::span<const Var> in) {
      return std::vector{draw(in[0], in[1], in[2], token ? in[3] : Var{})};
    };
    c.absolute = 0;
    c.use = use;
    cases.push_back(std::move(c));
  };
  std::vector<DrawRule> spread;  // hits all parts of the distribution
  for (int i = 0; i < 23; i++)
    spread.push_back({.uniform = (static_cast<float>(i) + 0.37f) / 23, .temperature = 1, .count = 64});
  add("greedy", 3, 1, 1, 0, {DrawRule{}});
  add("greedy, the best are barred", 2, 5, 1, 3, {DrawRule{}});
  add("all are barred", 2, 3, 1, 3, {DrawRule{}, {.uniform = 0.5f, .temperature = 1, .count = 9}});
  add("all places", 23, 64, 0.1, 0, spread, CaseUse::both);
  add("all places, most barred", 23, 64, 0.1, 40, spread);
  add("all places", 23, 64, 0.1, 5, spread, CaseUse::test, true);
  for (DrawRule& r : spread) r.temperature = 0.3f, r.top_p = 0.9f;
  add("top-p, cold", 23, 40, 0.15, 0, spread);
  for (DrawRule& r : spread) r.top_p = 1, r.min_p = 0.2f, r.temperature = 2.5f, r.truncation_temperature = 2.5f;
  add("min-p, hot", 23, 256, 0.11, 2, spread);
  for (DrawRule& r : spread) r.count = 3, r.min_p = 0;
  add("three of many", 23, 50, 0.02, 1, spread);
  add("no rows", 0, 4, 1, 1, spread);
  return cases;
}

std::vector<OpRefusal> draw_refusals() {
  const auto rule_of = [](Graph& g, std::uint64_t rows) {
    return g.input("r", {DType::F32, {rows, kDrawRuleNumbers}});
  };
  const auto barred = [](Graph& g) { return g.input("barred", {DType::U32, {1}}); };
  return {
      {"draw", "values", [=](Graph& g) { (void)draw(g.input("x", {DType::F32, {2, 8}}), barred(g), rule_of(g, 2)); },
       "draw: best is F32 [2, 8], expected U32 [rows, 1 to 256, 2]"},
      {"draw", "barred places of another type",
       [=](Graph& g) {
         (void)draw(g.input("x", {DType::U32, {2, 8, 2}}), g.input("barred", {DType::F32, {1}}), rule_of(g, 2));
       },
       "draw: barred is F32 [1], expected U32 [b]"},
      {"draw", "rules of other rows",
       [=](Graph& g) { (void)draw(g.input("x", {DType::U32, {2, 8, 2}}), barred(g), rule_of(g, 1)); },
       "draw: rules is F32 [1, 6], expected F32 [2, 6]"},
      {"draw", "a token of other rows",
       [=](Graph& g) {
         (void)draw(g.input("x", {DType::U32, {2, 8, 2}}), barred(g), rule_of(g, 2), g.input("t", {DType::U32, {1}}));
       },
       "draw: token is U32 [1], expected U32 [2]"}};
}

}  // namespace rullama
