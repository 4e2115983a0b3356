#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/slice/slice.h"

namespace rullama {

std::vector<OpCase> slice_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](bool by_rows, std::uint64_t r, std::uint64_t n, std::uint64_t first, std::uint64_t count) {
    OpCase c;
    c.op = by_rows ? "rows" : "columns";
    c.format = "F32";
    c.shape = cat(r, "x", n, " first=", first, " count=", count);
    c.inputs = {{"x", {DType::F32, {r, n}}, Fill::normal()}};
    c.build = [=](Graph&, std::span<const Var> in) {
      return std::vector{by_rows ? rows(in[0], first, count) : columns(in[0], first, count)};
    };
    c.absolute = 0;
    c.derivative = r * n < 5000;
    cases.push_back(std::move(c));
  };
  for (const bool by_rows : {true, false}) {
    add(by_rows, 1, 1, 0, 1);
    add(by_rows, 7, 5, 2, 3);
    add(by_rows, 7, 5, 4, 1);
    add(by_rows, 7, 7, 0, 7);
    add(by_rows, 33, 65, 3, 0);
  }
  add(true, 70000, 8, 100, 69000);
  for (const bool by_rows : {true, false}) {  // one of two halves
    add(by_rows, 1024, 5120, 0, by_rows ? 512 : 2560);
    cases.back().use = CaseUse::bench;
  }
  return cases;
}

std::vector<OpRefusal> slice_refusals() {
  return {{"rows", "past the end", [](Graph& g) { (void)rows(g.input("x", {DType::F32, {4, 8}}), 2, 3); },
           "rows: x is F32 [4, 8]"},
          {"columns", "past the end", [](Graph& g) { (void)columns(g.input("x", {DType::F32, {4, 8}}), 8, 1); },
           "columns: x is F32 [4, 8]"}};
}

}  // namespace rullama
