#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/position_embedding/position_embedding.h"

namespace rullama {

std::vector<OpCase> position_embedding_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](DType type, std::uint64_t rows, std::uint64_t positions, std::uint64_t d, double end,
                       CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "add_position_embedding_2d";
    c.format = name(type);
    c.shape = cat("rows=", rows, " positions=", positions, " d=", d,
                  end > static_cast<double>(positions) ? " some outside" : "");
    c.inputs = {{"h", {DType::F32, {rows, d}}, Fill::normal()},
                {"table", {type, {2, positions, d}}, Fill::normal(), true},
                {"pos_x", {DType::U32, {rows}}, Fill::ids(end)},
                {"pos_y", {DType::U32, {rows}}, Fill::ids(end)}};
    c.build = [](Graph&, std::span<const Var> in) {
      return std::vector{add_position_embedding_2d(in[0], in[1], in[2], in[3])};
    };
    c.absolute = 1e-6;
    c.derivative = d < 100;
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const DType type : {DType::F32, DType::F16, DType::BF16}) add(type, 9, 7, 33, 7), add(type, 5, 64, 256, 80);
  for (const DType type : {DType::Q8_0, DType::Q4_0}) add(type, 9, 7, 96, 7);
  add(DType::Q4_K, 9, 7, 512, 7);
  add(DType::F32, 1, 1, 1, 1), add(DType::F32, 0, 4, 8, 4);
  add(DType::F32, 2304, 10240, 1152, 48, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> position_embedding_refusals() {
  const auto refusal = [](std::string what, TensorDesc table, TensorDesc pos_y, std::string message) {
    return OpRefusal{"add_position_embedding_2d", std::move(what),
                     [=](Graph& g) {
                       (void)add_position_embedding_2d(g.input("h", {DType::F32, {3, 8}}), g.input("table", table),
                                                       g.input("x", {DType::U32, {3}}), g.input("y", pos_y));
                     },
                     std::move(message)};
  };
  return {refusal("one table", {DType::F32, {1, 4, 8}}, {DType::U32, {3}},
                  "add_position_embedding_2d: table is F32 [1, 4, 8], expected [2, positions, 8]"),
          refusal("ids that are no ids", {DType::F32, {2, 4, 8}}, {DType::F32, {3}},
                  "add_position_embedding_2d: pos_y is F32 [3], expected U32 [3]"),
          refusal("another width", {DType::F32, {2, 4, 9}}, {DType::U32, {3}},
                  "add_position_embedding_2d: table is F32 [2, 4, 9], expected [2, positions, 8]"),
          refusal("too few positions", {DType::F32, {2, 4, 8}}, {DType::U32, {2}},
                  "add_position_embedding_2d: pos_y is U32 [2], expected U32 [3]")};
}

}  // namespace rullama
