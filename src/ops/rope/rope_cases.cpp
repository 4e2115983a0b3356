#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/rope/rope.h"

namespace rullama {
namespace {

CaseInput positions_input(std::string name, std::uint64_t rows, std::uint32_t first, std::uint32_t step = 1) {
  return {
      std::move(name), {DType::U32, {rows}}, Fill::function([=](std::uint64_t i) { return first + double(i) * step; })};
}

struct RopeCase {
  std::uint64_t rows, heads, d;
  std::uint32_t rotated, position;
  float base = 1e4f;
  bool factors = false;
  float position_scale = 1;
  bool inverse = false;
};

OpCase make(const RopeCase& r, CaseUse use, double absolute) {
  OpCase c;
  c.op = "rope";
  c.format = "F32";
  c.shape =
      cat("rows=", r.rows, " heads=", r.heads, " d=", r.d, " r=", r.rotated, " position=", r.position, " base=", r.base,
          r.factors ? " factors" : "", r.position_scale != 1 ? " scaled" : "", r.inverse ? " inverse" : "");
  c.inputs = {{"x", {DType::F32, {r.rows, r.heads, r.d}}, Fill::uniform(-1, 1)},
              positions_input("positions", r.rows, r.position)};
  if (r.factors) {  // the first quarter turns, one pair slowly, the others not at all
    const std::uint64_t quarter = r.rotated / 8;
    c.inputs.push_back({"factors",
                        {DType::F32, {r.rotated / 2}},
                        Fill::function([=](std::uint64_t i) { return i + 1 < quarter ? 1
                                                                     : i < quarter   ? 2
                                                                                     : 1e30; }),
                        true});
  }
  c.build = [r](Graph&, std::span<const Var> in) {
    const RopeOptions options{r.rotated, r.base, r.position_scale, r.inverse};
    return std::vector{rope(in[0], in[1], r.factors ? in[2] : Var{}, options)};
  };
  c.absolute = absolute;
  c.derivative = r.rows * r.heads * r.d <= 4096;
  c.use = use;
  return c;
}

}  // namespace

std::vector<OpCase> rope_cases() {
  std::vector<OpCase> cases;
  const auto test = [&](const RopeCase& r, double absolute = 1e-5) {
    cases.push_back(make(r, CaseUse::test, absolute));
  };
  test({1, 8, 256, 256, 8});
  test({1, 8, 512, 512, 1024, 1e6f, true}, 1e-4);
  test({4, 2, 64, 64, 131068}, 1e-4);  // the end of the longest context
  test({2, 1, 512, 512, 131070, 1e6f}, 1e-4);
  test({4, 4, 16, 16, 8, 1e4f, false, 1, true});
  test({3, 1, 2, 2, 5});
  test({5, 3, 24, 10, 33});  // part of the head turns
  test({9, 2, 20, 20, 100, 1e6f, false, 0.125f});
  test({1, 1, 7, 4, 3, 12345.678f});
  test({0, 2, 8, 8, 0});
  test({66000, 1, 66, 4, 0}, 1e-4);  // more than 65,535 workgroups
  cases.push_back(make({512, 4, 256, 256, 0, 1e6f}, CaseUse::bench, 1e-4));
  cases.back().derivative = true;
  {
    OpCase c;  // turned and turned back: the input again
    c.op = "rope";
    c.format = "F32";
    c.shape = "there and back";
    c.inputs = {{"x", {DType::F32, {4, 4, 16}}, Fill::normal()}, positions_input("positions", 4, 11)};
    c.build = [](Graph&, std::span<const Var> in) {
      RopeOptions options{16, 1e4f};
      Var turned = rope(in[0], in[1], {}, options);
      options.inverse = true;
      return std::vector{rope(turned, in[1], {}, options)};
    };
    cases.push_back(std::move(c));
  }
  for (const std::uint64_t rows : {0, 1, 9, 300, 2304}) {
    OpCase c;
    c.op = "rope_2d";
    c.format = "F32";
    const std::uint64_t d = rows == 1 ? 4 : 64;
    const bool inverse = rows == 300;
    c.shape = cat("rows=", rows, " heads=3 d=", d, " base=100", inverse ? " inverse" : "");
    c.inputs = {{"x", {DType::F32, {rows, 3, d}}, Fill::normal()},
                positions_input("pos_x", rows, 0),
                positions_input("pos_y", rows, 40, 3)};
    c.build = [inverse](Graph&, std::span<const Var> in) {
      return std::vector{rope_2d(in[0], in[1], in[2], 100, inverse)};
    };
    c.derivative = rows < 10 || rows == 2304;
    if (rows == 2304) c.use = CaseUse::bench;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<OpRefusal> rope_refusals() {
  const auto refusal = [](std::string what, TensorDesc x, RopeOptions options, std::string message) {
    return OpRefusal{"rope", std::move(what),
                     [=](Graph& g) { (void)rope(g.input("x", x), g.input("p", {DType::U32, {2}}), {}, options); },
                     std::move(message)};
  };
  const TensorDesc x{DType::F32, {2, 3, 8}};
  return {
      refusal("x of two dimensions", {DType::F32, {2, 24}}, {8, 1e4f}, "rope: x is F32 [2, 24], expected F32 [rows"),
      refusal("an odd width", x, {7, 1e4f}, "rope: 7 rotated elements with base 10000, expected an even number"),
      refusal("no width", x, {0, 1e4f}, "rope: 0 rotated elements"),
      refusal("too large a width", x, {10, 1e4f}, "rope: 10 elements turn, but a head has 8"),
      refusal("base of one", x, {8, 1}, "rope: 8 rotated elements with base 1,"),
      refusal("positions of another length", {DType::F32, {3, 3, 8}}, {8, 1e4f},
              "rope: positions is U32 [2], expected U32 [3]"),
      {"rope", "factors of another length",
       [](Graph& g) {
         (void)rope(g.input("x", {DType::F32, {2, 3, 8}}), g.input("p", {DType::U32, {2}}),
                    g.input("f", {DType::F32, {3}}), {8, 1e4f});
       },
       "rope: factors is F32 [3], expected F32 [4]"},
      {"rope_2d", "a width that is no multiple of 4",
       [](Graph& g) {
         Var p = g.input("p", {DType::U32, {2}});
         (void)rope_2d(g.input("x", {DType::F32, {2, 3, 10}}), p, p, 100);
       },
       "rope_2d: a head width of 10"},
  };
}

}  // namespace rullama
