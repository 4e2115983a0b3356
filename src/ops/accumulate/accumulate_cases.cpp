#include "base/text.h"
#include "ops/accumulate/accumulate.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

OpCase accumulate_case(Shape state, Shape x, std::uint64_t first, double keep) {
  OpCase c;
  c.op = "accumulate";
  c.format = "F32";
  c.shape = cat("state=", state.str(), " x=", x.str(), " first=", first, " keep=", keep);
  c.inputs = {{"state", {F32, state}, Fill::normal(), true, true},
              {"x", {F32, x}, Fill::normal()},
              {"keep", {F32, {1}}, Fill::function([keep](std::uint64_t) { return keep; })}};
  c.build = [first](Graph&, std::span<const Var> in) {
    accumulate(in[0], in[1], in[2], first);
    return std::vector<Var>{};
  };
  c.absolute = 1e-6;
  return c;
}

}  // namespace

std::vector<OpCase> accumulate_cases() {
  std::vector<OpCase> cases;
  cases.push_back(accumulate_case({1}, {1}, 0, 1));
  cases.push_back(accumulate_case({7, 33}, {7, 33}, 0, 0));
  cases.push_back(accumulate_case({40, 3}, {5, 3}, 7 * 3, 1));
  cases.push_back(accumulate_case({40, 3}, {5, 3}, 35 * 3, 0.5));
  cases.push_back(accumulate_case({4}, {0}, 4, 1));
  cases.push_back(accumulate_case({257, 66000}, {257, 66000}, 0, 1));  // more than 65,535 workgroups
  for (CaseInput& input : cases.back().inputs)
    if (input.name != "keep")
      input.fill = Fill::function([](std::uint64_t i) { return static_cast<double>(i % 7) - 3; });
  cases.push_back(accumulate_case({262144, 16}, {262144, 16}, 0, 1));
  cases.back().use = CaseUse::bench;
  return cases;
}

std::vector<OpRefusal> accumulate_refusals() {
  const auto refusal = [](std::string what, TensorDesc state, TensorDesc x, std::uint64_t first, std::string message) {
    return OpRefusal{
        "accumulate", std::move(what),
        [=](Graph& g) { accumulate(g.input("state", state), g.input("x", x), g.input("keep", {F32, {1}}), first); },
        std::move(message)};
  };
  return {
      refusal("more than fits", {F32, {8}}, {F32, {5}}, 4, "accumulate: x is F32 [5], expected F32 with at most 4"),
      refusal("a start past the end", {F32, {8}}, {F32, {0}}, 9,
              "accumulate: x is F32 [0], expected F32 with at most 0"),
      refusal("a state of halves", {F16, {8}}, {F32, {8}}, 0, "accumulate: state is F16 [8], expected F32"),
  };
}

}  // namespace rullama
