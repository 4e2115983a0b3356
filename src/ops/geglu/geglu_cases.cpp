#include "base/text.h"
#include "ops/geglu/geglu.h"
#include "ops/op_cases.h"

namespace rullama {

std::vector<OpCase> geglu_cases() {
  std::vector<OpCase> cases;
  const auto two = [&](const char* name, std::function<Var(Var, Var)> f, std::uint64_t r, std::uint64_t n,
                       std::uint64_t up_n, double range, double absolute, double relative,
                       CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = name;
    c.format = "F32";
    c.shape = cat(r, "x", n, " up=", up_n, " range=", range);
    c.inputs = {{"gate", {DType::F32, {r, n}}, Fill::uniform(-range, range)},
                {"up", {DType::F32, {r, up_n}}, Fill::uniform(-range / 4, range / 4)}};
    c.build = [f](Graph&, std::span<const Var> in) { return std::vector{f(in[0], in[1])}; };
    c.absolute = absolute;
    c.relative = relative;
    c.derivative = r * n < 10000;
    c.use = use;
    cases.push_back(std::move(c));
  };
  const auto plain = [](Var g, Var u) { return geglu(g, u); };
  for (const std::uint64_t n : {1, 3, 8, 9, 33, 64, 65, 100, 1000}) two("geglu", plain, 2, n, n, 3, 1e-5, 0);
  two("geglu", plain, 1, 6144, 6144, 3, 1e-5, 0);
  two("geglu", plain, 1, 128, 128, 40, 5e-4, 1e-4);
  two("geglu", plain, 0, 8, 8, 3, 0, 0);
  two("geglu", plain, 512, 8194, 8194, 3, 1e-5, 1e-5);
  two("geglu", [](Var g, Var u) { return geglu(g, u, 5); }, 3, 7, 20, 3, 1e-5, 0);
  two("geglu", [](Var g, Var u) { return geglu(g, u, 13); }, 3, 7, 20, 3, 1e-5, 0);
  cases.back().shape += " last columns";
  two("quick_geglu", [](Var g, Var u) { return quick_geglu(g, u); }, 3, 67, 67, 3, 1e-5, 0);
  two("quick_geglu", [](Var g, Var u) { return quick_geglu(g, u); }, 1, 64, 64, 40, 1e-5, 1e-5);
  two("quick_geglu", [](Var g, Var u) { return quick_geglu(g, u); }, 1, 1, 1, 3, 1e-5, 0);
  two("quick_geglu", [](Var g, Var u) { return quick_geglu(g, u); }, 0, 8, 8, 3, 0, 0);
  two("geglu", plain, 512, 6144, 6144, 3, 1e-5, 0, CaseUse::bench);
  cases.back().derivative = true;
  two("quick_geglu", [](Var g, Var u) { return quick_geglu(g, u); }, 2304, 4304, 4304, 3, 1e-5, 0, CaseUse::bench);
  cases.back().derivative = true;

  const auto one = [&](const char* name, std::function<Var(Var)> f, std::uint64_t r, std::uint64_t n,
                       CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = name;
    c.format = "F32";
    c.shape = cat(r, "x", n);
    c.inputs = {{"u", {DType::F32, {r, 2 * n}}, Fill::uniform(-3, 3)}};
    c.build = [f](Graph&, std::span<const Var> in) { return std::vector{f(in[0])}; };
    c.absolute = 1e-5;
    c.derivative = true;
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const auto& [r, n] : {std::pair<std::uint64_t, std::uint64_t>{1, 67}, {6, 20}, {33, 1}}) {
    one("geglu_halves", [](Var u) { return geglu_halves(u); }, r, n);
    one("glu_split", [](Var x) { return glu_split(x); }, r, n);
  }
  one("geglu_halves", [](Var u) { return geglu_halves(u); }, 512, 6144, CaseUse::bench);
  one("glu_split", [](Var x) { return glu_split(x); }, 750, 1024, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> geglu_refusals() {
  return {
      {"geglu", "rows differ",
       [](Graph& g) { (void)geglu(g.input("g", {DType::F32, {2, 8}}), g.input("u", {DType::F32, {3, 8}})); },
       "geglu: up is F32 [3, 8]"},
      {"geglu", "too few columns",
       [](Graph& g) { (void)geglu(g.input("g", {DType::F32, {2, 8}}), g.input("u", {DType::F32, {2, 12}}), 5); },
       "geglu: up is F32 [2, 12]"},
      {"geglu_halves", "an odd number of columns",
       [](Graph& g) { (void)geglu_halves(g.input("u", {DType::F32, {2, 9}})); },
       "geglu: x is F32 [2, 9], expected rows of an even number of elements"},
      {"glu_split", "an odd number of columns", [](Graph& g) { (void)glu_split(g.input("x", {DType::F32, {2, 9}})); },
       "glu: x is F32 [2, 9], expected rows of an even number of elements"},
      {"quick_geglu", "halves", [](Graph& g) { (void)quick_geglu(g.input("g", {DType::F16, {2, 8}}), {}); },
       "quick_geglu: "},
      {"quick_geglu", "another length",
       [](Graph& g) { (void)quick_geglu(g.input("g", {DType::F32, {2, 8}}), g.input("u", {DType::F32, {2, 7}})); },
       "quick_geglu: up is F32 [2, 7]"}};
}

}  // namespace rullama
