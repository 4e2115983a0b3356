#include "base/text.h"
#include "ops/adamw/adamw.h"
#include "ops/op_cases.h"
#include "ops/reduce/reduce.h"

namespace rullama {

std::vector<OpCase> adamw_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](std::uint64_t n, std::uint64_t step, double weight_decay, bool clipped,
                       CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "adamw";
    c.format = "F32";
    c.shape = cat("n=", n, " t=", step, " wd=", weight_decay, clipped ? " clipped" : "");
    const TensorDesc desc{DType::F32, {n}};
    const AdamHyper h = adam_hyper(1e-3, step, 0.9, 0.999, 1e-8, weight_decay, clipped ? 0.5 : 1);
    const Fill zero = Fill::function([](auto) { return 0.0; });
    const float values[] = {h.lr,           h.beta1,       h.beta2,       h.eps,
                            h.weight_decay, h.correction1, h.correction2, h.gradient_scale};
    c.inputs = {{"p", desc, Fill::normal(), true, true},
                {"m", desc, step == 1 ? zero : Fill::normal(0.1), true, true},
                {"v", desc, step == 1 ? zero : Fill::uniform(0.001, 0.01), true, true},
                {"g", desc, Fill::normal(0.1)},
                {"hyper", {DType::F32, {8}}, Fill::function([v = std::vector<double>(values, values + 8)](auto i) {
                   return v[i];
                 })}};
    c.build = [clipped](Graph&, std::span<const Var> in) {
      adamw(in[0], in[1], in[2], in[3], in[4], clipped ? clip_factor(sum_squares(in[3], 0.5f), 0.25f) : Var{});
      return std::vector<Var>{};
    };
    c.absolute = 1e-6;
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const std::uint64_t t : {1, 2, 10, 100000}) add(128, t, 0.01, false);
  add(1, 1, 0, false), add(65, 3, 0, true), add(0, 1, 0, false);
  add(1u << 24, 10, 0.01, false, CaseUse::bench);

  for (const double square : {4.0, 0.25, 0.0}) {
    OpCase c;
    c.op = "clip_factor";
    c.format = "F32";
    c.shape = cat("square=", square);
    c.inputs = {{"squares", {DType::F32, {1}}, Fill::function([square](auto) { return square; })}};
    c.build = [](Graph&, std::span<const Var> in) { return std::vector{clip_factor(in[0], 1), clip_factor(in[0], 0)}; };
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<OpRefusal> adamw_refusals() {
  return {{"adamw", "gradient of another length",
           [](Graph& g) {
             const Var p = g.input("p", {DType::F32, {8}});
             adamw(p, p, p, g.input("g", {DType::F32, {9}}), g.input("h", {DType::F32, {8}}));
           },
           "adamw: g is F32 [9], expected F32 with 8 elements"},
          {"adamw", "too few hyperparameters",
           [](Graph& g) {
             const Var p = g.input("p", {DType::F32, {8}});
             adamw(p, p, p, p, g.input("h", {DType::F32, {7}}));
           },
           "adamw: hyper is F32 [7], expected F32 [8]"},
          {"adamw", "a clip factor for each element",
           [](Graph& g) {
             const Var p = g.input("p", {DType::F32, {8}});
             adamw(p, p, p, p, p, p);
           },
           "adamw: clip is F32 [8], expected F32 [1]"}};
}

}  // namespace rullama
