#include "base/text.h"
#include "ops/cache/cache.h"
#include "ops/op_cases.h"

namespace rullama {

std::vector<OpCase> cache_write_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](DType type, std::uint64_t slots, std::uint64_t rows, std::uint64_t heads, std::uint64_t d,
                       std::uint32_t position, double deviation = 1, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "cache_write";
    c.format = name(type);
    c.shape = cat("slots=", slots, " rows=", rows, " heads=", heads, " d=", d, " position=", position,
                  deviation > 1 ? " wide" : "");
    c.inputs = {
        {"cache", {type, {slots, heads, d}}, Fill::normal(), true, true},
        {"x", {DType::F32, {rows, heads, d}}, Fill::normal(deviation)},
        {"positions", {DType::U32, {rows}}, Fill::function([=](std::uint64_t i) { return position + double(i); })}};
    c.build = [](Graph&, std::span<const Var> in) {
      cache_write(in[0], in[1], in[2]);
      return std::vector<Var>{};
    };
    c.absolute = type == DType::F16 ? 1e-7 : 0;
    c.relative = type == DType::F16 ? 1.0 / 1024 : 0;  // either neighbour may be taken
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const DType type : {DType::F32, DType::F16}) {
    add(type, 8, 3, 2, 6, 0);
    add(type, 8, 8, 1, 2, 5);        // wraps within the run
    add(type, 9, 1, 3, 20, 131071);  // a late position
    add(type, 64, 33, 1, 256, 100);
    add(type, 5, 0, 1, 8, 0);
    add(type, 4, 4, 2, 8, 2, 1e5);  // beyond the largest half
    add(type, 4096, 512, 1, 256, 3900, 1, CaseUse::bench);
  }
  add(DType::F32, 5, 3, 1, 7, 4);  // odd width
  return cases;
}

std::vector<OpRefusal> cache_write_refusals() {
  const auto refusal = [](std::string what, TensorDesc cache, TensorDesc x, TensorDesc positions, std::string message) {
    return OpRefusal{
        "cache_write", std::move(what),
        [=](Graph& g) { cache_write(g.input("cache", cache), g.input("x", x), g.input("positions", positions)); },
        std::move(message)};
  };
  const TensorDesc cache{DType::F32, {8, 2, 4}}, x{DType::F32, {3, 2, 4}}, positions{DType::U32, {3}};
  return {
      refusal("x of two dimensions", cache, {DType::F32, {3, 8}}, positions, "cache_write: x is F32 [3, 8], expected"),
      refusal("heads that differ", cache, {DType::F32, {3, 1, 4}}, positions,
              "cache_write: cache is F32 [8, 2, 4], expected F32 or F16 [slots, 1, 4]"),
      refusal("a quantised cache", {DType::Q8_0, {8, 2, 32}}, {DType::F32, {3, 2, 32}}, positions,
              "cache_write: cache is Q8_0 [8, 2, 32]"),
      refusal("odd halves", {DType::F16, {8, 2, 3}}, {DType::F32, {3, 2, 3}}, positions,
              "expected an even width for F16"),
      refusal("too few positions", cache, x, {DType::U32, {2}}, "cache_write: positions is U32 [2], expected U32 [3]"),
      refusal("more rows than slots", {DType::F32, {2, 2, 4}}, x, positions,
              "cache_write: 3 rows do not fit into a cache of 2 slots"),
  };
}

}  // namespace rullama
