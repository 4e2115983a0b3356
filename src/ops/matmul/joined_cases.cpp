// Rows of the op table for products of one input with several weights.
#include "base/text.h"
#include "ops/matmul/matmul.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

struct Weights {
  std::vector<DType> types;
  std::vector<std::uint64_t> rows;
};

OpCase concat(std::uint64_t k, std::uint64_t m, const Weights& w) {
  OpCase c;
  c.op = "matmul_concat";
  c.shape = cat("k=", k, " rows=", m, " n=");
  c.inputs = {{"x", {F32, {m, k}}, Fill::uniform(-0.5, 0.5)}};
  bool quantised = false;
  for (std::size_t i = 0; i < w.types.size(); i++) {
    c.format += cat(i ? "+" : "", name(w.types[i]));
    c.shape += cat(i ? "+" : "", w.rows[i]);
    c.inputs.push_back({cat("w", i), {w.types[i], {w.rows[i], k}}, Fill::normal(0.05), true});
    quantised = quantised || info(w.types[i]).quantised;
  }
  c.build = [](Graph&, std::span<const Var> in) { return std::vector{matmul_concat(in[0], in.subspan(1))}; };
  c.absolute = 1e-4;
  c.relative = 1e-5;
  c.fast = quantised ? 0.02 : 0;
  c.joined = true;
  return c;
}

OpCase gated(DType gate, DType up, std::uint64_t k, std::uint64_t n, std::uint64_t m) {
  OpCase c;
  c.op = "gated_matmul";
  c.format = gate == up ? std::string(name(gate)) : cat(name(gate), "+", name(up));
  c.shape = cat("k=", k, " n=", n, " rows=", m);
  c.inputs = {{"x", {F32, {m, k}}, Fill::uniform(-0.5, 0.5)},
              {"gate", {gate, {n, k}}, Fill::normal(0.3), true},
              {"up", {up, {n, k}}, Fill::normal(0.3), true}};
  c.build = [](Graph&, std::span<const Var> in) { return std::vector{gated_matmul(in[0], in[1], in[2])}; };
  c.absolute = 1e-3;
  c.relative = 1e-5;
  c.fast = info(gate).quantised ? 0.02 : m >= 32 ? 2e-3 : 0;  // 8 bits, or 16 by matrix units
  c.joined = true;
  return c;
}

}  // namespace

std::vector<OpCase> matmul_joined_cases() {
  std::vector<OpCase> cases;
  for (const DType w : {F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K}) {
    cases.push_back(concat(256, 1, {{w, w, w}, {64, 16, 32}}));
    cases.back().derivative = true;
    cases.push_back(concat(256, 19, {{w, w}, {48, 17}}));
    cases.push_back(gated(w, w, 256, 48, 1));
    cases.back().derivative = true;
    cases.push_back(gated(w, w, 256, 48, 19));
  }
  cases.push_back(concat(256, 3, {{Q4_K, Q4_K, Q6_K}, {64, 16, 16}}));  // the last one by itself
  cases.push_back(concat(256, 3, {{Q8_0, Q4_K, Q8_0}, {33, 5, 16}}));
  cases.push_back(concat(64, 3, {{Q5_0, Q5_0}, {3, 5}}));  // rows that leave planes unaligned
  cases.push_back(concat(32, 2, {{Q8_0}, {7}}));
  cases.push_back(concat(9, 2, {{F16, F32}, {3, 1}}));
  cases.push_back(concat(32, 0, {{Q8_0, Q8_0}, {8, 8}}));
  cases.push_back(gated(Q4_K, Q4_K, 512, 70, 5));
  cases.push_back(gated(Q4_0, Q8_0, 64, 33, 2));
  cases.push_back(gated(F32, F32, 7, 3, 2));
  cases.push_back(gated(Q4_K, Q4_K, 256, 70, 70));  // tiles of matrix units, small and large
  cases.push_back(gated(Q6_K, Q6_K, 512, 64, 130));
  cases.push_back(gated(F16, F16, 100, 200, 33));
  cases.push_back(gated(Q8_0, Q8_0, 64, 1000, 2050));
  cases.push_back(gated(Q8_0, Q8_0, 32, 16, 0));
  cases.push_back(gated(Q4_K, Q4_K, 256, 4096, 1));
  for (const DType w : {Q5_0, Q4_K}) {
    OpCase qkv = concat(1536, 1, {{w, w, w}, {2048, 256, 256}}), ffn = gated(w, w, 1536, 6144, 1);
    qkv.use = ffn.use = CaseUse::bench;
    cases.push_back(std::move(qkv));
    cases.push_back(std::move(ffn));
  }
  return cases;
}

std::vector<OpRefusal> matmul_joined_refusals() {
  const auto input = [](Graph& g, DType type, Shape shape) { return g.input("x", {type, shape}); };
  return {
      {"matmul_concat", "no weights", [=](Graph& g) { (void)matmul_concat(input(g, F32, {2, 8}), {}); },
       "matmul_concat: no weights"},
      {"matmul_concat", "a weight of another width",
       [=](Graph& g) {
         const Var w[] = {input(g, F32, {4, 8}), input(g, F32, {4, 9})};
         (void)matmul_concat(input(g, F32, {2, 8}), w);
       },
       "matmul_concat: x is F32 [2, 8], expected F32 [..., 9]"},
      {"matmul_concat", "a weight of ids",
       [=](Graph& g) {
         const Var w[] = {input(g, U32, {4, 8})};
         (void)matmul_concat(input(g, F32, {2, 8}), w);
       },
       "matmul_concat: w0 is U32 [4, 8], expected F32, F16"},
      {"gated_matmul", "halves of other sizes",
       [=](Graph& g) { (void)gated_matmul(input(g, F32, {2, 8}), input(g, F32, {4, 8}), input(g, F32, {5, 8})); },
       "gated_matmul: up is F32 [5, 8], expected [4, 8] like gate"},
  };
}

}  // namespace rullama
