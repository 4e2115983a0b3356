#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/pool/pool.h"

namespace rullama {

std::vector<OpCase> pool_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](Shape shape, std::uint32_t k, CaseUse use = CaseUse::test) {  // k = 0: the channel first
    OpCase c;
    c.op = k ? "average_pool" : "average_pool_2x2";
    c.format = "F32";
    c.shape = cat(shape.str(), k ? cat(" k=", k) : "");
    c.inputs = {{"x", {DType::F32, shape}, Fill::normal()}};
    c.build = [k](Graph&, std::span<const Var> in) {
      return std::vector{k ? average_pool(in[0], k) : average_pool_2x2(in[0])};
    };
    c.absolute = 1e-6;
    c.use = use;
    cases.push_back(std::move(c));
  };
  add({6, 9, 4}, 3), add({7, 8, 5}, 3), add({1, 1, 1}, 1), add({4, 6, 65}, 2), add({2, 9, 4}, 3), add({9, 0, 4}, 3);
  add({2, 4, 5}, 0), add({1, 2, 1}, 0), add({3, 8, 64}, 0), add({2, 0, 4}, 0);
  add({48, 48, 1152}, 3, CaseUse::bench), add({64, 80, 256}, 0, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> pool_refusals() {
  return {
      {"average_pool", "two dimensions", [](Graph& g) { (void)average_pool(g.input("x", {DType::F32, {4, 4}}), 2); },
       "average_pool: x is F32 [4, 4], expected F32 [H, W, C]"},
      {"average_pool", "squares of nothing",
       [](Graph& g) { (void)average_pool(g.input("x", {DType::F32, {4, 4, 1}}), 0); },
       "average_pool: squares of 0, expected 1 or more"},
      {"average_pool_2x2", "two dimensions",
       [](Graph& g) { (void)average_pool_2x2(g.input("x", {DType::F32, {4, 4}})); },
       "average_pool_2x2: x is F32 [4, 4], expected F32 [C, H, W]"},
      {"average_pool_2x2", "an odd height",
       [](Graph& g) { (void)average_pool_2x2(g.input("x", {DType::F32, {2, 3, 4}})); },
       "average_pool_2x2: x is F32 [2, 3, 4], expected an even height"}};
}

}  // namespace rullama
