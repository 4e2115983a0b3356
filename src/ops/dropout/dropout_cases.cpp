#include <cmath>

#include "base/text.h"
#include "ops/dropout/dropout.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

OpCase dropout_case(Shape shape, double rate, std::uint32_t stream, double seed) {
  OpCase c;
  c.op = "dropout";
  c.format = "F32";
  c.shape = cat("x=", shape.str(), " rate=", rate, " stream=", stream, " seed=", seed);
  c.inputs = {{"x", {F32, shape}, Fill::normal()},
              {"seed", {U32, {1}}, Fill::function([seed](std::uint64_t) { return seed; })}};
  c.build = [=](Graph&, std::span<const Var> in) {
    return std::vector{dropout(in[0], in[1], stream, static_cast<float>(rate))};
  };
  c.absolute = 1e-6;
  c.relative = 1e-6;
  c.derivative = true;
  return c;
}

}  // namespace

std::vector<OpCase> dropout_cases() {
  std::vector<OpCase> cases;
  cases.push_back(dropout_case({1}, 0.5, 0, 0));
  cases.push_back(dropout_case({3, 7}, 0, 1, 2));
  cases.push_back(dropout_case({70, 33}, 0.1, 5, 99999));
  cases.push_back(dropout_case({70, 33}, 0.99, 4294967295u, 1));
  cases.push_back(dropout_case({0, 3}, 0.5, 0, 0));
  cases.push_back(dropout_case({257, 66000}, 0.25, 3, 9));  // more than 65,535 workgroups
  cases.back().inputs[0].fill = Fill::function([](std::uint64_t i) { return static_cast<double>(i % 7) - 3; });
  cases.back().derivative = false;
  cases.push_back(dropout_case({2048, 1536}, 0.1, 3, 9));
  cases.back().use = CaseUse::bench;
  return cases;
}

std::vector<OpRefusal> dropout_refusals() {
  const auto refusal = [](std::string what, float rate, TensorDesc seed, std::string message) {
    return OpRefusal{"dropout", std::move(what),
                     [=](Graph& g) { (void)dropout(g.input("x", {F32, {4}}), g.input("seed", seed), 0, rate); },
                     std::move(message)};
  };
  return {
      refusal("a rate of one", 1, {U32, {1}}, "dropout: rate is 1, expected at least 0 and below 1"),
      refusal("no number", std::nanf(""), {U32, {1}}, "dropout: rate is nan, expected"),
      refusal("two seeds", 0.5f, {U32, {2}}, "dropout: seed is U32 [2], expected U32 [1]"),
  };
}

}  // namespace rullama
