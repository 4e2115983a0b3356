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
  add(1, 256, false, CaseUse::test, true);
  add(1, 1536, true, CaseUse::test);
  add(35, 256, true, CaseUse::test);
  add(70000, 8, true, CaseUse::test);
  add(0, 8, true, CaseUse::test);
  add(512, 2048, true, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> rms_norm_refusals() {
  return {
      {"rms_norm", "weight of another length",
       [](Graph& g) { (void)rms_norm(g.input("x", {DType::F32, {2, 8}}), g.input("w", {DType::F32, {4}}), 1e-6f); },
       "rms_norm: w is F32 [4], expected F32 [8]"},
      {"rms_norm", "eps of zero", [](Graph& g) { (void)rms_norm(g.input("x", {DType::F32, {2, 8}}), {}, 0); },
       "rms_norm: eps is 0"},
  };
}

}  // namespace rullama
