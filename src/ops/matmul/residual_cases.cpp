// Rows of the op table for a step of the residual stream and a product.
#include "base/text.h"
#include "ops/matmul/matmul.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

struct Form {
  std::string_view op;
  bool next, scaled;
};

OpCase residual(Form f, DType type, std::uint64_t k, std::uint64_t n, std::uint64_t rows) {
  OpCase c;
  c.op = f.op;
  c.format = name(type);
  c.shape = cat("k=", k, " n=", n, " rows=", rows, f.next ? " next" : "", f.scaled ? " scaled" : "");
  const TensorDesc stream{F32, {rows, k}}, vector{F32, {k}}, matrix{type, {n, k}};
  c.inputs = {{"residual", stream, Fill::normal(20)},
              {"x", stream, Fill::normal(3)},
              {"w", vector, Fill::normal(0.3, 1), true}};
  if (f.next) c.inputs.push_back({"w_next", vector, Fill::normal(0.1, 0.3), true});
  if (f.scaled) c.inputs.push_back({"scale", {F32, {1}}, Fill::uniform(0.5, 1), true});
  c.inputs.push_back({"w0", matrix, Fill::normal(0.05), true});
  if (f.op != "residual_gelu") c.inputs.push_back({"w1", matrix, Fill::normal(0.05), true});
  if (f.op == "residual_gelu") c.inputs.push_back({"factor", {F32, {rows, 3 * n + 2}}, Fill::normal()});
  c.build = [f, n](Graph&, std::span<const Var> in) {
    const std::size_t first = 3u + f.next + f.scaled;
    const ResidualStep step{.residual = in[0],
                            .x = in[1],
                            .w = in[2],
                            .w_next = f.next ? in[3] : Var{},
                            .scale = f.scaled ? in[first - 1] : Var{}};
    const auto column = static_cast<std::uint32_t>(2 * n + 1);
    const ResidualProduct made = f.op == "residual_concat"  ? residual_concat(step, in.subspan(first))
                                 : f.op == "residual_gated" ? residual_gated(step, in[first], in[first + 1])
                                                            : residual_gelu(step, in[first], in[first + 1], column);
    return std::vector{made.sum, made.y};
  };
  c.absolute = 2e-4;
  c.relative = 1e-5;
  c.fast = info(type).quantised ? 0.04 : 0;
  c.joined = true;
  return c;
}

}  // namespace

std::vector<OpCase> residual_product_cases() {
  constexpr Form kConcat{"residual_concat", true, false}, kScaled{"residual_concat", true, true},
      kGated{"residual_gated", true, false}, kGelu{"residual_gelu", false, false};
  std::vector<OpCase> cases;
  for (const Form& f : {kConcat, kScaled, kGated, kGelu})
    for (const DType w : {F16, Q8_0, Q4_K})
      for (const std::uint64_t rows : {1, 3, 19}) cases.push_back(residual(f, w, 256, 40, rows));
  cases.push_back(residual({"residual_concat", false, true}, Q5_0, 96, 7, 2));
  cases.push_back(residual({"residual_gated", false, false}, Q6_K, 512, 64, 1));
  cases.push_back(residual({"residual_gelu", true, true}, Q4_0, 64, 3, 1));
  cases.push_back(residual(kScaled, Q4_K, 256, 48, 1));  // a value of another type: a dispatch of its own
  cases.back().inputs.back().desc.dtype = Q6_K;
  cases.back().shape += " and Q6_K";
  cases.push_back(residual(kGated, F32, 9, 3, 2));
  cases.push_back(residual(kConcat, Q8_0, 32, 8, 0));
  for (OpCase c : {residual(kConcat, Q4_K, 1536, 1280, 1), residual(kGated, Q4_K, 1536, 6144, 1),
                   residual(kGated, Q5_0, 640, 2048, 1), residual(kGelu, Q4_K, 1536, 256, 1)}) {
    c.use = CaseUse::bench;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<OpRefusal> residual_product_refusals() {
  const auto step = [](Graph& g) {
    return ResidualStep{
        .residual = g.input("r", {F32, {2, 8}}), .x = g.input("x", {F32, {2, 8}}), .w = g.input("w", {F32, {8}})};
  };
  return {
      {"residual_concat", "no weights", [=](Graph& g) { (void)residual_concat(step(g), {}); },
       "residual_concat: no weights"},
      {"residual_concat", "a weight of another width",
       [=](Graph& g) { (void)residual_concat(step(g), std::vector{g.input("w", {F32, {4, 9}})}); },
       "residual_concat: w0 is F32 [4, 9], expected [n, 8]"},
      {"residual_gated", "halves of other sizes",
       [=](Graph& g) { (void)residual_gated(step(g), g.input("a", {F32, {4, 8}}), g.input("b", {F32, {5, 8}})); },
       "residual_gated: up is F32 [5, 8], expected [4, 8] like gate"},
      {"residual_gelu", "a factor that ends too soon",
       [=](Graph& g) { (void)residual_gelu(step(g), g.input("w", {F32, {4, 8}}), g.input("f", {F32, {2, 6}}), 3); },
       "residual_gelu: factor is F32 [2, 6], expected F32 [2, 7 or more]"},
      {"residual_gated", "a block of another shape",
       [=](Graph& g) {
         ResidualStep s = step(g);
         s.x = g.input("other", {F32, {3, 8}});
         (void)residual_gated(s, g.input("a", {F32, {4, 8}}), g.input("b", {F32, {4, 8}}));
       },
       "residual_gated: x is F32 [3, 8], expected F32 [2, 8]"},
      {"residual_gated", "eps of zero",
       [=](Graph& g) {
         ResidualStep s = step(g);
         s.eps = 0;
         (void)residual_gated(s, g.input("a", {F32, {4, 8}}), g.input("b", {F32, {4, 8}}));
       },
       "residual_gated: eps is 0"},
  };
}

}  // namespace rullama
