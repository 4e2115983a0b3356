#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/transpose/transpose.h"

namespace rullama {

std::vector<OpCase> transpose_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const char* name, Shape shape, std::function<Var(Var)> f, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = name;
    c.format = "F32";
    c.shape = shape.str();
    c.inputs = {{"x", {DType::F32, shape}, Fill::normal()}};
    c.build = [f](Graph&, std::span<const Var> in) { return std::vector{f(in[0])}; };
    c.absolute = 0;
    c.derivative = shape.elements() < 5000;
    if (c.derivative) c.absolute = 1e-5;
    c.use = use;
    cases.push_back(std::move(c));
  };
  const auto flip = [](Var x) { return transpose(x); };
  const auto heads = [](Var x) { return swap_heads(x); };
  for (const Shape& s : {Shape{5, 7}, {1, 1}, {1, 9}, {64, 65}, {0, 4}, {2049, 2048}}) add("transpose", s, flip);
  add("transpose", {4096, 4096}, flip, CaseUse::bench);
  for (const Shape& s : {Shape{5, 3, 8}, {1, 4, 9}, {33, 2, 65}}) add("swap_heads", s, heads);
  add("swap_heads", {7, 3, 5}, [](Var x) { return swap_heads(swap_heads(x)); });
  cases.back().shape += " there and back";
  for (const Shape& s : {Shape{3, 19}, {1, 1}, {8, 64}}) add("upsample", s, [](Var x) { return upsample(x); });
  add("swap_heads", {2048, 8, 256}, heads, CaseUse::bench);
  add("upsample", {512, 12000}, [](Var x) { return upsample(x); }, CaseUse::bench);
  add("upsample", {2, 9}, [](Var x) { return upsample(x, 5); });
  cases.back().shape += " factor=5";
  return cases;
}

std::vector<OpRefusal> transpose_refusals() {
  return {{"transpose", "three dimensions", [](Graph& g) { (void)transpose(g.input("x", {DType::F32, {2, 3, 4}})); },
           "transpose: x is F32 [2, 3, 4], expected F32 of 2 dimensions"},
          {"swap_heads", "two dimensions", [](Graph& g) { (void)swap_heads(g.input("x", {DType::F32, {2, 3}})); },
           "swap_heads: x is F32 [2, 3], expected F32 of 3 dimensions"},
          {"upsample", "three dimensions", [](Graph& g) { (void)upsample(g.input("x", {DType::F32, {2, 3, 4}})); },
           "upsample: x is F32 [2, 3, 4], expected F32 [C, T]"},
          {"upsample", "to nothing", [](Graph& g) { (void)upsample(g.input("x", {DType::F32, {2, 3}}), 0); },
           "upsample: a factor of 0, expected 1 or more"}};
}

}  // namespace rullama
