#include "base/text.h"
#include "ops/experts/experts.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

OpCase route_case(std::uint64_t t, std::uint64_t d, std::uint64_t e, std::uint32_t k, bool scaled) {
  OpCase c;
  c.op = "route";
  c.format = "F32";
  c.shape = cat("tokens=", t, " width=", d, " experts=", e, " k=", k, scaled ? " scaled" : "");
  c.inputs = {{"x", {F32, {t, d}}, Fill::normal(3)}, {"router", {F32, {e, d}}, Fill::normal(0.5), true}};
  if (scaled) c.inputs.push_back({"scale", {F32, {d}}, Fill::normal(0.2, 1), true});
  c.build = [k, scaled](Graph&, std::span<const Var> in) {
    const Routed r = route(in[0], in[1], scaled ? in[2] : Var{}, 1e-6f, k);
    return std::vector{r.ids, r.weights};
  };
  return c;
}

// The gradient of the shares; all experts are chosen, so that small steps change no choice.
OpCase share_case(std::uint64_t t, std::uint64_t e) {
  OpCase c;
  c.op = "choose_experts";
  c.format = "F32";
  c.shape = cat("tokens=", t, " experts=", e, " all chosen");
  c.inputs = {{"scores", {F32, {t, e}}, Fill::normal()}};
  c.build = [e](Graph&, std::span<const Var> in) {
    return std::vector{choose_experts(in[0], static_cast<std::uint32_t>(e)).weights};
  };
  c.derivative = true;
  return c;
}

// Scores given by a function: which experts win is known.
OpCase choice_case(std::string what, std::uint64_t e, std::uint32_t k, std::function<double(std::uint64_t)> at) {
  OpCase c;
  c.op = "choose_experts";
  c.format = "F32";
  c.shape = cat("experts=", e, " k=", k, " ", what);
  c.inputs = {{"scores", {F32, {1, e}}, Fill::function(std::move(at))}};
  c.build = [k](Graph&, std::span<const Var> in) {
    const Routed r = choose_experts(in[0], k);
    return std::vector{r.ids, r.weights};
  };
  return c;
}

struct Size {
  std::uint64_t t, slots, e, n, k;
};

// `shared`: one row of x for all slots.
OpCase product_case(DType w, Size s, bool shared, bool some_outside = false, bool gated = false) {
  OpCase c;
  c.op = gated ? "expert_gated_matmul" : "expert_matmul";
  c.format = name(w);
  c.shape = cat("tokens=", s.t, " slots=", s.slots, " experts=", s.e, " n=", s.n, " k=", s.k, shared ? " shared" : "",
                some_outside ? " some outside" : "");
  const Shape x = shared ? Shape{s.t, s.k} : Shape{s.t, s.slots, s.k};
  c.inputs = {{"x", {F32, x}, Fill::uniform(-0.5, 0.5)},
              {"w", {w, {s.e, s.n, s.k}}, Fill::normal(0.1), true},
              {"ids", {U32, {s.t, s.slots}}, Fill::ids(static_cast<double>(s.e) + (some_outside ? 2 : 0))}};
  c.build = [gated](Graph&, std::span<const Var> in) {
    return std::vector{(gated ? expert_gated_matmul : expert_matmul)(in[0], in[1], in[2])};
  };
  c.absolute = 1e-4;
  c.relative = 1e-5;
  c.fast = info(w).quantised ? 0.02 : s.t >= 32 ? 2e-3 : 0;  // 8 bits, or 16 by matrix units
  c.derivative = s.t < 100;
  return c;
}

// `n` results of twice as many rows of w.
OpCase gated_case(DType w, Size s, bool shared, bool some_outside = false) {
  const std::uint64_t n = s.n;
  s.n *= 2;
  OpCase c = product_case(w, s, shared, some_outside, true);
  c.shape += cat(" gated ", n);
  return c;
}

OpCase combine_case(std::uint64_t t, std::uint64_t slots, std::uint64_t n, std::uint64_t e, bool scaled) {
  OpCase c;
  c.op = "expert_combine";
  c.format = "F32";
  c.shape = cat("tokens=", t, " slots=", slots, " n=", n, scaled ? " scaled" : "");
  c.inputs = {{"slots", {F32, {t, slots, n}}, Fill::normal()},
              {"ids", {U32, {t, slots}}, Fill::ids(static_cast<double>(e))},
              {"weights", {F32, {t, slots}}, Fill::uniform(0, 1)}};
  if (scaled) c.inputs.push_back({"dscale", {F32, {e}}, Fill::uniform(0.5, 1.5), true});
  c.build = [scaled](Graph&, std::span<const Var> in) {
    return std::vector{expert_combine(in[0], in[1], in[2], scaled ? in[3] : Var{})};
  };
  c.derivative = true;
  return c;
}

}  // namespace

std::vector<OpCase> experts_cases() {
  std::vector<OpCase> cases = {
      route_case(3, 96, 16, 4, true),
      route_case(1, 96, 16, 4, false),
      route_case(5, 2816, 128, 8, true),
      route_case(70, 32, 8, 2, true),
      route_case(0, 32, 8, 2, true),
      share_case(1, 1),
      share_case(5, 9),
      choice_case("all equal", 20, 5, [](std::uint64_t) { return 1.0; }),
      choice_case("a late winner", 128, 8,
                  [](std::uint64_t i) { return i == 127 ? 5.0 : 0.01 * static_cast<double>(i % 7); }),
      choice_case("rising", 256, 16, [](std::uint64_t i) { return 0.1 * static_cast<double>(i); }),
      choice_case("falling", 256, 16, [](std::uint64_t i) { return -0.1 * static_cast<double>(i); }),
      choice_case("wide", 9, 4, [](std::uint64_t i) { return i % 2 ? 1e4 : -1e4; }),
  };
  for (const DType w : {F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K}) {
    cases.push_back(product_case(w, {2, 2, 3, 5, 256}, true));
    cases.push_back(product_case(w, {3, 2, 6, 4, 256}, false));
    cases.push_back(product_case(w, {2, 2, 6, 40, 512}, true, true));
    cases.back().split = true;
    OpCase decode = product_case(w, {1, 8, 128, 1408, 2816}, true),
           prompt = product_case(w, {512, 8, 128, 1408, 2816}, true);
    decode.derivative = false;
    for (OpCase* c : {&decode, &prompt}) {
      c->use = CaseUse::bench;
      if (w != F32 && w != BF16) cases.push_back(*c);
    }
  }
  cases.push_back(product_case(Q8_0, {1, 3, 6, 5, 64}, true));
  cases.push_back(product_case(Q5_0, {1, 2, 5, 4, 64}, true));
  cases.push_back(product_case(Q8_0, {9, 3, 4, 7, 64}, true, true));
  cases.push_back(product_case(F16, {4, 2, 3, 3, 33}, false, true));
  cases.push_back(product_case(Q8_0, {70, 2, 3, 40, 64}, true));
  // tiles of pairs that chose the same expert
  cases.push_back(product_case(Q4_K, {150, 3, 5, 70, 256}, true, true));
  cases.push_back(product_case(Q5_0, {64, 4, 4, 130, 96}, false, true));
  cases.push_back(product_case(Q6_K, {37, 7, 11, 64, 512}, true));
  cases.push_back(product_case(F16, {80, 2, 1, 33, 68}, false));
  cases.push_back(product_case(F32, {300, 8, 256, 36, 7}, true, true));
  cases.push_back(product_case(Q8_0, {64, 2, 5, 40, 64}, true));
  cases.back().shape += " one full tile";  // of the one expert that anybody chose, and one of no expert
  cases.back().inputs[2].fill = Fill::function([](std::uint64_t i) { return i % 2 ? 3.0 : 4294967295.0; });
  cases.push_back(gated_case(Q8_0, {64, 1, 1, 31, 64}, true));
  cases.push_back(gated_case(Q4_K, {150, 3, 5, 70, 256}, true, true));
  cases.push_back(gated_case(Q8_0, {40, 4, 4, 64, 96}, false));
  cases.push_back(gated_case(Q4_K, {3, 2, 6, 20, 256}, true, true));
  cases.back().split = true;  // gate and factor in different parts
  cases.push_back(gated_case(F16, {2, 2, 3, 5, 33}, true));
  cases.push_back(gated_case(Q8_0, {1, 8, 9, 35, 64}, true));
  cases.push_back(product_case(F32, {0, 2, 3, 4, 8}, true));
  cases.push_back(combine_case(1, 3, 50, 8, true));
  cases.push_back(combine_case(3, 2, 16, 8, false));
  cases.push_back(combine_case(1, 1, 1, 1, true));
  cases.push_back(combine_case(0, 2, 16, 8, true));
  for (OpCase c : {route_case(1, 2816, 128, 8, true), route_case(512, 2816, 128, 8, true),
                   combine_case(512, 8, 2816, 128, true)}) {
    c.use = CaseUse::bench;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<OpRefusal> experts_refusals() {
  return {
      {"choose_experts", "more experts than 256",
       [](Graph& g) { (void)choose_experts(g.input("s", {F32, {2, 257}}), 2); },
       "choose_experts: scores is F32 [2, 257], expected at most 256 experts"},
      {"choose_experts", "more than 16 chosen",
       [](Graph& g) { (void)choose_experts(g.input("s", {F32, {2, 64}}), 17); },
       "choose_experts: 17 of 64 experts, expected 1 to 16"},
      {"choose_experts", "more than there are", [](Graph& g) { (void)choose_experts(g.input("s", {F32, {2, 3}}), 4); },
       "choose_experts: 4 of 3 experts, expected 1 to 3"},
      {"expert_matmul", "an x of another width",
       [](Graph& g) {
         (void)expert_matmul(g.input("x", {F32, {2, 9}}), g.input("w", {F32, {3, 4, 8}}),
                             g.input("ids", {U32, {2, 2}}));
       },
       "expert_matmul: x is F32 [2, 9], expected F32 [2, 8] or F32 [2, 2, 8]"},
      {"choose_experts", "scores of one dimension", [](Graph& g) { (void)choose_experts(g.input("s", {F32, {9}}), 2); },
       "choose_experts: scores is F32 [9], expected F32 [T, E]"},
      {"expert_matmul", "ids of one dimension",
       [](Graph& g) {
         (void)expert_matmul(g.input("x", {F32, {2, 8}}), g.input("w", {F32, {3, 4, 8}}), g.input("ids", {U32, {2}}));
       },
       "expert_matmul: ids is U32 [2], expected U32 [T, slots]"},
      {"expert_matmul", "rows that are no whole blocks",
       [](Graph& g) {
         (void)expert_matmul(g.input("x", {F32, {2, 8}}), g.input("w", {Q8_0, {3, 4, 8}}),
                             g.input("ids", {U32, {2, 2}}));
       },
       "expert_matmul: w is Q8_0 [3, 4, 8], expected [experts, n, k] of a weight type, k a multiple of 32"},
      {"expert_matmul_transposed", "a dy of other slots",
       [](Graph& g) {
         (void)expert_matmul_transposed(g.input("dy", {F32, {2, 3, 4}}), g.input("w", {F32, {3, 4, 8}}),
                                        g.input("ids", {U32, {2, 2}}), false);
       },
       "expert_matmul_transposed: dy is F32 [2, 3, 4], expected F32 [2, 2, 4]"},
      {"expert_combine", "slots of two dimensions",
       [](Graph& g) {
         const Var two = g.input("slots", {F32, {2, 3}});
         (void)expert_combine(two, g.input("ids", {U32, {2, 3}}), two, {});
       },
       "expert_combine: slots is F32 [2, 3], expected F32 [T, slots, n]"},
      {"route", "a router of another width",
       [](Graph& g) { (void)route(g.input("x", {F32, {2, 9}}), g.input("router", {F32, {4, 8}}), {}, 1e-6f, 2); },
       "matmul: x is F32 [2, 9], expected F32 [..., 8]"},
      {"expert_matmul", "weights of two dimensions",
       [](Graph& g) {
         (void)expert_matmul(g.input("x", {F32, {2, 8}}), g.input("w", {F32, {4, 8}}), g.input("ids", {U32, {2, 2}}));
       },
       "expert_matmul: w is F32 [4, 8], expected [experts, n, k]"},
      {"expert_combine", "weights of another shape",
       [](Graph& g) {
         (void)expert_combine(g.input("slots", {F32, {2, 3, 8}}), g.input("ids", {U32, {2, 3}}),
                              g.input("weights", {F32, {2, 2}}), {});
       },
       "expert_combine: weights is F32 [2, 2], expected F32 [2, 3]"},
  };
}

}  // namespace rullama
