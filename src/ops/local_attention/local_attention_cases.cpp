#include "base/text.h"
#include "ops/local_attention/local_attention.h"
#include "ops/op_cases.h"

namespace rullama {

std::vector<OpCase> local_attention_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](Shape shape, std::uint64_t distances, LocalAttentionOptions options, double spread = 1,
                       CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "local_attention";
    c.format = "F32";
    c.shape = cat(shape.str(), " past=", options.past, " future=", options.future, " distances=", distances,
                  " cap=", options.cap, spread > 1 ? " wide" : "");
    for (const char* name : {"q", "k", "v"}) c.inputs.push_back({name, {DType::F32, shape}, Fill::normal(spread)});
    c.inputs.push_back({"relative", {DType::F32, {distances, shape[1], shape[2]}}, Fill::normal(spread)});
    c.build = [options](Graph&, std::span<const Var> in) {
      return std::vector{local_attention(in[0], in[1], in[2], in[3], options)};
    };
    c.absolute = 5e-5;
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const std::uint64_t rows : {1, 8, 12, 13, 33, 65}) add({rows, 2, 16}, 13, {.past = 12, .cap = 50});
  add({41, 8, 128}, 13, {.past = 12, .cap = 50});
  add({41, 8, 128}, 12, {.past = 11, .cap = 50}, 3);  // scores far beyond the cap
  add({20, 3, 7}, 4, {.past = 6, .future = 3});       // distances without a term on both sides
  add({20, 1, 1}, 1, {});                             // each row sees itself only
  add({9, 2, 8}, 40, {.past = 30, .future = 30, .cap = 5});
  add({0, 2, 8}, 13, {.past = 12});
  add({750, 8, 128}, 13, {.past = 12, .cap = 50}, 1, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> local_attention_refusals() {
  const auto refusal = [](std::string what, Shape k, Shape relative, float cap, std::string message) {
    return OpRefusal{"local_attention", std::move(what),
                     [=](Graph& g) {
                       const Var q = g.input("q", {DType::F32, {5, 2, 8}}), keys = g.input("k", {DType::F32, k});
                       (void)local_attention(q, keys, keys, g.input("r", {DType::F32, relative}), {.cap = cap});
                     },
                     std::move(message)};
  };
  return {refusal("keys of another length", {6, 2, 8}, {3, 2, 8}, 0,
                  "local_attention: k is F32 [6, 2, 8], expected F32 [5, 2, 8]"),
          refusal("distances of other heads", {5, 2, 8}, {3, 1, 8}, 0,
                  "local_attention: relative is F32 [3, 1, 8], expected F32 [distances, 2, 8]"),
          {"local_attention", "values of other heads",
           [](Graph& g) {
             const Var q = g.input("q", {DType::F32, {5, 2, 8}});
             (void)local_attention(q, q, g.input("v", {DType::F32, {5, 1, 8}}), q, {});
           },
           "local_attention: v is F32 [5, 1, 8], expected F32 [5, 2, 8]"},
          refusal("a negative cap", {5, 2, 8}, {3, 2, 8}, -1, "local_attention: cap is -1, expected 0 or more")};
}

}  // namespace rullama
