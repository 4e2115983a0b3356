#include <cmath>

#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/rms_norm/rms_norm.h"

namespace rullama {

std::vector<OpCase> rms_norm_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](std::uint64_t rows, std::uint64_t n, bool weighted, CaseUse use, bool derivative = false) {
    OpCase c;
    c.op = "rms_norm";
    c.format = "F32";
    c.shape = cat("rows=", rows, " n=", n, weighted ? " weighted" : "");
    c.inputs = {{"x", {DType::F32, {rows, n}}, Fill::normal(1.5)}};
    if (weighted) c.inputs.push_back({"w", {DType::F32, {n}}, Fill::normal(0.3, 1), true});
    c.build = [weighted](Graph&, std::span<const Var> in) {
      return std::vector{rms_norm(in[0], weighted ? in[1] : Var{}, 1e-6f)};
    };
    c.absolute = 1e-5;
    c.derivative = derivative;
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const std::uint64_t n : {1, 3, 8, 9, 33, 64, 65, 100, 1000}) add(3, n, true, CaseUse::test, true);
  add(1, 1152, false, CaseUse::test), add(4, 32, false, CaseUse::test, true);
  add(1, 256, false, CaseUse::test, true);
  add(1, 1536, true, CaseUse::test);
  add(35, 256, true, CaseUse::test);
  add(70000, 8, true, CaseUse::test, true);
  {
    add(2, 256, true, CaseUse::test, true);
    OpCase& wide = cases.back();
    wide.shape += " wide";
    wide.inputs[0].fill = Fill::function([](auto i) { return 20 * std::sin(static_cast<double>(i)); });
    wide.inputs[1].fill = Fill::function([](auto i) { return i % 4 ? 0.05 : 5.0; });
  }
  add(0, 8, true, CaseUse::test);
  add(512, 2048, true, CaseUse::bench, true);

  const auto fused = [&](std::uint64_t rows, std::uint64_t n, bool scaled, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "residual_norm";
    c.format = "F32";
    c.shape = cat("rows=", rows, " n=", n, scaled ? " scaled" : "");
    const TensorDesc matrix{DType::F32, {rows, n}}, vector{DType::F32, {n}};
    c.inputs = {{"residual", matrix, Fill::normal(2)},
                {"x", matrix, Fill::normal(3)},
                {"w", vector, Fill::normal(0.3, 1), true},
                {"w_next", vector, Fill::normal(0.3, 1), true}};
    if (scaled) c.inputs.push_back({"scale", {DType::F32, {1}}, Fill::uniform(0.5, 1), true});
    c.build = [scaled](Graph&, std::span<const Var> in) {
      const auto [sum, normed] = residual_norm(in[0], in[1], in[2], in[3], 1e-6f, scaled ? in[4] : Var{});
      return std::vector{sum, normed};
    };
    c.absolute = 1e-5;
    c.relative = 1e-6;
    c.derivative = n > 2 && rows * n < 4000;
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const std::uint64_t n : {1, 3, 8, 9, 33, 64, 65, 100, 1000}) fused(3, n, n % 2 == 0);
  fused(1, 1536, true), fused(0, 8, false), fused(70000, 8, true);
  fused(1, 2048, true, CaseUse::bench), fused(512, 2048, false, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> rms_norm_refusals() {
  return {
      {"rms_norm", "weight of another length",
       [](Graph& g) { (void)rms_norm(g.input("x", {DType::F32, {2, 8}}), g.input("w", {DType::F32, {4}}), 1e-6f); },
       "rms_norm: w is F32 [4], expected F32 [8]"},
      {"rms_norm", "a type other than F32",
       [](Graph& g) { (void)rms_norm(g.input("x", {DType::U32, {2, 8}}), {}, 1e-6f); },
       "rms_norm: x is U32 [2, 8], expected F32"},
      {"rms_norm_backward", "dy of another shape",
       [](Graph& g) {
         (void)rms_norm_backward(g.input("x", {DType::F32, {2, 8}}), {}, g.input("dy", {DType::F32, {2, 4}}), 1e-6f);
       },
       "rms_norm_backward: dy is F32 [2, 4], expected F32 [2, 8]"},
      {"rms_norm", "eps of zero", [](Graph& g) { (void)rms_norm(g.input("x", {DType::F32, {2, 8}}), {}, 0); },
       "rms_norm: eps is 0"},
      {"residual_norm", "residual of another shape",
       [](Graph& g) {
         const Var w = g.input("w", {DType::F32, {8}});
         (void)residual_norm(g.input("r", {DType::F32, {2, 8}}), g.input("x", {DType::F32, {3, 8}}), w, w, 1e-6f);
       },
       "residual_norm: x is F32 [3, 8], expected F32 [2, 8]"},
  };
}

}  // namespace rullama
