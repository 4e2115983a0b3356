#include "base/text.h"
#include "ops/embedding/embedding.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

OpCase rows_case(DType table, std::uint64_t v, std::uint64_t d, std::uint64_t t, double ids_end) {
  OpCase c;
  c.op = "embedding";
  c.format = name(table);
  c.shape = cat("rows=", v, " width=", d, " ids=", t, ids_end > static_cast<double>(v) ? " some outside" : "");
  c.inputs = {{"table", {table, {v, d}}, Fill::normal(0.5), true}, {"ids", {U32, {t}}, Fill::ids(ids_end)}};
  c.build = [](Graph&, std::span<const Var> in) { return std::vector{embedding(in[0], in[1], 1.5f)}; };
  c.absolute = 1e-6;
  c.relative = 1e-6;
  return c;
}

OpCase columns_case(std::uint64_t rank, std::uint64_t v, std::uint64_t t, double ids_end) {
  OpCase c;
  c.op = "embedding_columns";
  c.format = "F32";
  c.shape = cat("rank=", rank, " columns=", v, " ids=", t, ids_end > static_cast<double>(v) ? " some outside" : "");
  c.inputs = {{"a", {F32, {rank, v}}, Fill::normal()}, {"ids", {U32, {t}}, Fill::ids(ids_end)}};
  c.build = [](Graph&, std::span<const Var> in) { return std::vector{embedding_columns(in[0], in[1])}; };
  c.absolute = 1e-6;
  c.relative = 1e-6;
  c.derivative = true;
  return c;
}

OpCase scatter_case(std::uint64_t rank, std::uint64_t v, std::uint64_t t) {
  OpCase c;
  c.op = "scatter_add_columns";
  c.format = "F32";
  c.shape = cat("rank=", rank, " columns=", v, " ids=", t);
  c.inputs = {{"u", {F32, {t, rank}}, Fill::normal()}, {"ids", {U32, {t}}, Fill::ids(static_cast<double>(v) + 1)}};
  c.build = [v](Graph&, std::span<const Var> in) { return std::vector{scatter_add_columns(in[0], in[1], v)}; };
  c.absolute = 1e-5;
  c.relative = 1e-6;
  c.derivative = rank * v < 10000;
  return c;
}

}  // namespace

std::vector<OpCase> embedding_cases() {
  std::vector<OpCase> cases;
  for (const DType type : {F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K}) {
    cases.push_back(rows_case(type, 50, 512, 9, 50));
    cases.push_back(rows_case(type, 200, 256, 8, 250));
    cases.back().split = true;
    OpCase bench = rows_case(type, 32768, 2560, 512, 32768);
    bench.use = CaseUse::bench;
    cases.push_back(std::move(bench));
  }
  for (const DType type : {F32, F16, BF16})
    for (const std::uint64_t d : {1, 9, 33, 100}) cases.push_back(rows_case(type, 7, d, 5, 7));
  cases.push_back(rows_case(Q8_0, 20, 64, 40, 30));
  cases.push_back(rows_case(F32, 3, 8, 0, 3));
  cases.push_back(rows_case(F16, 10, 1, 4200000, 10));  // more than 65,535 workgroups
  cases.push_back(columns_case(1, 1, 1, 1));
  cases.push_back(columns_case(5, 33, 70, 40));
  cases.push_back(columns_case(16, 100, 3, 100));
  cases.push_back(columns_case(4, 100, 0, 100));
  cases.push_back(scatter_case(3, 5, 40));  // each column several times
  cases.push_back(scatter_case(16, 262144, 9));
  cases.push_back(columns_case(16, 262144, 2048, 262144));  // the adapter of an embedding
  cases.back().use = CaseUse::bench;
  cases.push_back(scatter_case(16, 262144, 2048));
  cases.back().use = CaseUse::bench;
  return cases;
}

std::vector<OpRefusal> embedding_refusals() {
  return {
      {"embedding", "ids that are no ids",
       [](Graph& g) { (void)embedding(g.input("table", {F32, {4, 8}}), g.input("ids", {F32, {2}})); },
       "embedding: ids is F32 [2], expected U32 [2]"},
      {"embedding", "a table of one dimension",
       [](Graph& g) { (void)embedding(g.input("table", {F32, {4}}), g.input("ids", {U32, {2}})); },
       "embedding: table is F32 [4], expected two dimensions"},
      {"embedding", "a table of ids",
       [](Graph& g) { (void)embedding(g.input("table", {U32, {4, 8}}), g.input("ids", {U32, {2}})); },
       "embedding: table is U32 [4, 8], expected F32, F16"},
      {"embedding", "rows that are no whole blocks",
       [](Graph& g) { (void)embedding(g.input("table", {Q8_0, {4, 48}}), g.input("ids", {U32, {2}})); },
       "embedding: table is Q8_0 [4, 48], expected two dimensions, rows of a multiple of 32 elements"},
      {"embedding_columns", "halves",
       [](Graph& g) { (void)embedding_columns(g.input("a", {F16, {4, 8}}), g.input("ids", {U32, {2}})); },
       "embedding_columns: a is F16 [4, 8], expected F32 [R, V]"},
      {"scatter_add_columns", "one dimension",
       [](Graph& g) { (void)scatter_add_columns(g.input("u", {F32, {8}}), g.input("ids", {U32, {8}}), 9); },
       "scatter_add_columns: u is F32 [8], expected F32 [T, R]"},
      {"scatter_add_columns", "another number of ids",
       [](Graph& g) { (void)scatter_add_columns(g.input("u", {F32, {4, 8}}), g.input("ids", {U32, {2}}), 9); },
       "scatter_add_columns: ids is U32 [2], expected U32 [4]"},
  };
}

}  // namespace rullama
