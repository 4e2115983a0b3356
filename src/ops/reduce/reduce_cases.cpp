#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/reduce/reduce.h"

namespace rullama {

std::vector<OpCase> reduce_cases() {
  std::vector<OpCase> cases;
  const auto squares = [&](std::uint64_t n, float s, Fill fill, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "sum_squares";
    c.format = "F32";
    c.shape = cat("n=", n, " s=", s);
    c.inputs = {{"x", {DType::F32, {n}}, std::move(fill)}};
    c.build = [s](Graph&, std::span<const Var> in) { return std::vector{sum_squares(in[0], s)}; };
    c.absolute = 1e-6;
    c.relative = n > 100000 ? 1e-5 : 1e-4;
    c.derivative = n > 0 && n < 5000;
    c.use = use;
    cases.push_back(std::move(c));
  };
  const Fill ramp = Fill::function([](std::uint64_t i) { return (static_cast<double>(i) - 100) * 0.03; });
  for (const std::uint64_t n : {0, 1, 3, 63, 256, 1024, 4097}) squares(n, 1, ramp);
  squares(256, 0.5f, ramp);
  squares(4'195'328, 1, Fill::function([](std::uint64_t) { return 1.0; }));
  squares(1u << 24, 1, Fill::normal(), CaseUse::bench);

  const auto repeats = [&](std::uint64_t n, std::uint64_t m) {
    OpCase c;
    c.op = "sum_repeats";
    c.format = "F32";
    c.shape = cat("n=", n, " m=", m);
    c.inputs = {{"x", {DType::F32, {n}}, Fill::normal()}};
    c.build = [m](Graph&, std::span<const Var> in) { return std::vector{sum_repeats(in[0], {m})}; };
    c.absolute = 1e-3;
    c.derivative = n < 5000;
    cases.push_back(std::move(c));
  };
  const auto by_row = [&](std::uint64_t rows, std::uint64_t n) {
    OpCase c;
    c.op = "sum_rows";
    c.format = "F32";
    c.shape = cat("rows=", rows, " n=", n);
    c.inputs = {{"x", {DType::F32, {rows, n}}, Fill::normal()}};
    c.build = [rows](Graph&, std::span<const Var> in) { return std::vector{sum_rows(in[0], {rows})}; };
    c.absolute = 1e-3;
    c.derivative = rows * n < 5000;
    cases.push_back(std::move(c));
  };
  by_row(1, 1), by_row(3, 8), by_row(3, 9), by_row(2, 100), by_row(70000, 3), by_row(3, 50000);
  repeats(1, 1), repeats(100, 1), repeats(999, 9), repeats(64, 64), repeats(100000, 1), repeats(200000, 2000);
  return cases;
}

std::vector<OpRefusal> reduce_refusals() {
  return {{"sum_repeats", "a count that does not divide",
           [](Graph& g) { (void)sum_repeats(g.input("x", {DType::F32, {9}}), {4}); },
           "sum_repeats: x is F32 [9], expected F32 with a multiple of 4 elements"},
          {"sum_rows", "a count that does not divide",
           [](Graph& g) { (void)sum_rows(g.input("x", {DType::F32, {3, 3}}), {2}); },
           "sum_rows: x is F32 [3, 3], expected F32 with a multiple of 2 elements"},
          {"sum_squares", "a type other than F32", [](Graph& g) { (void)sum_squares(g.input("x", {DType::U32, {9}})); },
           "sum_squares: x is U32 [9], expected F32"}};
}

}  // namespace rullama
