#include <cmath>

#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/top_k/top_k.h"

namespace rullama {

std::vector<OpCase> top_k_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](std::uint64_t rows, std::uint64_t n, std::uint32_t k, Fill fill, std::string_view what = "",
                       CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "top_k";
    c.format = "F32";
    c.shape = cat("rows=", rows, " n=", n, " k=", k, what);
    c.inputs = {{"x", {DType::F32, {rows, n}}, std::move(fill)}};
    c.build = [k](Graph&, std::span<const Var> in) { return std::vector{top_k(in[0], k)}; };
    c.absolute = 0;
    c.use = use;
    cases.push_back(std::move(c));
  };
  add(1, 1, 1, Fill::normal()), add(3, 7, 7, Fill::normal()), add(2, 1000, 64, Fill::normal(20));
  add(2, 1024, 1, Fill::normal()), add(1, 1025, 256, Fill::normal()), add(3, 4100, 64, Fill::normal());
  add(1, 262144, 64, Fill::normal(10), "", CaseUse::both), add(1, 262144, 1, Fill::normal(), "", CaseUse::bench);
  add(0, 8, 2, Fill::normal());
  // as many equals as fill several runs, across runs, and next to their neighbours
  add(2, 3000, 70, Fill::function([](auto i) { return static_cast<double>(i % 3); }), " ties");
  add(1, 2100, 5, Fill::function([](auto) { return -1.5; }), " all alike");
  add(1, 2100, 40, Fill::function([](auto i) { return i % 2 ? -0.0 : 0.0; }), " zeros of both signs");
  add(2, 1500, 3, Fill::function([](auto i) { return -3e38 + 1e35 * static_cast<double>(i % 100); }),
      " large negative");
  add(1, 2048, 9, Fill::function([](auto i) { return 1e-42 * static_cast<double>(i % 7) - 3e-42; }), " subnormal");
  add(1, 2500, 6, Fill::function([](auto i) {
        return i == 2001 || i == 7 ? std::nan("") : i == 1100 ? -HUGE_VAL : i == 1300 ? HUGE_VAL : std::cos(i);
      }),
      " not finite");
  return cases;
}

std::vector<OpRefusal> top_k_refusals() {
  return {
      {"top_k", "none", [](Graph& g) { (void)top_k(g.input("x", {DType::F32, {2, 8}}), 0); },
       "top_k: k is 0, expected 1 to 8"},
      {"top_k", "more than there are", [](Graph& g) { (void)top_k(g.input("x", {DType::F32, {2, 8}}), 9); },
       "top_k: k is 9, expected 1 to 8"},
      {"top_k", "more than a workgroup sorts well",
       [](Graph& g) { (void)top_k(g.input("x", {DType::F32, {1, 1000}}), 257); }, "top_k: k is 257, expected 1 to 256"},
      {"top_k", "ids", [](Graph& g) { (void)top_k(g.input("x", {DType::U32, {2, 8}}), 1); },
       "top_k: x is U32 [2, 8], expected F32"}};
}

}  // namespace rullama
