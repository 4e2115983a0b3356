#include "base/text.h"
#include "ops/layer_norm/layer_norm.h"
#include "ops/op_cases.h"

namespace rullama {

std::vector<OpCase> layer_norm_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](bool by_row, std::uint64_t rows, std::uint64_t n, bool affine, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = by_row ? "adain" : "layer_norm";
    c.format = "F32";
    c.shape = cat("rows=", rows, " n=", n, affine ? " affine" : "");
    c.inputs = {{"x", {DType::F32, {rows, n}}, Fill::normal(1.5, 0.5)}};
    const TensorDesc vector{DType::F32, {by_row ? rows : n}};
    if (affine) {
      c.inputs.push_back({"gamma", vector, Fill::normal(0.3, by_row ? 0 : 1), true});
      c.inputs.push_back({"beta", vector, Fill::normal(0.5), true});
    }
    c.build = [=](Graph&, std::span<const Var> in) {
      const Var gamma = affine ? in[1] : Var{}, beta = affine ? in[2] : Var{};
      return std::vector{by_row ? adain(in[0], gamma, beta, 1e-5f) : layer_norm(in[0], gamma, beta, 1e-5f)};
    };
    c.absolute = 1e-4;
    c.derivative = n > 2 && rows * n < 10000;  // two values have no derivative to speak of
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const std::uint64_t n : {1, 3, 8, 9, 33, 64, 65, 100, 1000}) add(false, 3, n, true);
  add(false, 7, 53, true), add(false, 7, 52, false), add(false, 0, 8, true), add(false, 70000, 8, true);
  add(true, 8, 19, true), add(true, 8, 64, true), add(true, 1, 1000, true), add(true, 3, 100, false);
  add(false, 512, 1152, true, CaseUse::bench);
  cases.back().derivative = true;
  add(true, 256, 12000, true, CaseUse::bench);

  OpCase large_mean;
  large_mean.op = "layer_norm";
  large_mean.format = "F32";
  large_mean.shape = "large mean";
  large_mean.inputs = {{"x", {DType::F32, {2, 256}}, Fill::normal(1e-2, 1000)}};
  large_mean.build = [](Graph&, std::span<const Var> in) { return std::vector{layer_norm(in[0], {}, {}, 1e-5f)}; };
  large_mean.absolute = 1e-3;
  large_mean.relative = 1e-3;
  cases.push_back(large_mean);
  large_mean.op = "adain";
  large_mean.build = [](Graph&, std::span<const Var> in) { return std::vector{adain(in[0], {}, {}, 1e-5f)}; };
  cases.push_back(std::move(large_mean));
  return cases;
}

std::vector<OpRefusal> layer_norm_refusals() {
  return {{"layer_norm", "a type other than F32",
           [](Graph& g) { (void)layer_norm(g.input("x", {DType::U32, {2, 8}}), {}, {}, 1e-5f); },
           "layer_norm: x is U32 [2, 8], expected F32"},
          {"layer_norm", "eps of zero",
           [](Graph& g) { (void)layer_norm(g.input("x", {DType::F32, {2, 8}}), {}, {}, 0); }, "layer_norm: eps is 0"},
          {"layer_norm", "beta of another length",
           [](Graph& g) {
             (void)layer_norm(g.input("x", {DType::F32, {2, 8}}), g.input("v", {DType::F32, {8}}),
                              g.input("v", {DType::F32, {4}}), 1e-5f);
           },
           "layer_norm: beta is F32 [4], expected F32 [8]"},
          {"layer_norm", "gamma of another length",
           [](Graph& g) {
             const Var four = g.input("v", {DType::F32, {4}});
             (void)layer_norm(g.input("x", {DType::F32, {2, 8}}), four, four, 1e-5f);
           },
           "layer_norm: gamma is F32 [4], expected F32 [8]"},
          {"adain", "gamma by column",
           [](Graph& g) {
             const Var eight = g.input("v", {DType::F32, {8}});
             (void)adain(g.input("x", {DType::F32, {2, 8}}), eight, eight, 1e-5f);
           },
           "adain: gamma is F32 [8], expected F32 [2]"}};
}

}  // namespace rullama
