#include <limits>

#include "base/text.h"
#include "ops/elementwise/elementwise.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

constexpr std::uint64_t kBeyondOneDimension = 4'195'328;  // more than 65,535 workgroups of 64

OpCase unary_case(std::string name, std::uint64_t n, Fill fill, double absolute, std::function<Var(Var)> f) {
  OpCase c;
  c.op = std::move(name);
  c.format = "F32";
  c.shape = cat("n=", n);
  c.inputs = {{"x", {DType::F32, {n}}, std::move(fill)}};
  c.build = [f = std::move(f)](Graph&, std::span<const Var> in) { return std::vector{f(in[0])}; };
  c.absolute = absolute;
  c.relative = 2e-6;
  c.derivative = n <= 1000;
  return c;
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases;
  const auto unary = [&](const char* name, std::function<Var(Var)> f, Fill fill, double absolute) {
    for (const std::uint64_t n : {0, 1, 3, 255, 257, 1000}) cases.push_back(unary_case(name, n, fill, absolute, f));
    cases.push_back(unary_case(name, kBeyondOneDimension, fill, absolute, f));
    cases.push_back(unary_case(name, 1u << 24, fill, absolute, f));
    cases.back().derivative = true;
    cases.back().use = CaseUse::bench;
  };
  unary("scale", [](Var x) { return scale(x, -1.25f); }, Fill::normal(3), 0);
  unary("softcap", [](Var x) { return softcap(x, 30); }, Fill::uniform(-100, 100), 1e-4);
  unary(
      "clamp", [](Var x) { return clamp(x, -1, 1e30f); },
      Fill::function([](auto i) { return (static_cast<double>(i % 7) - 3) * 0.6; }), 0);
  unary("gelu", [](Var x) { return gelu(x); }, Fill::uniform(-6, 6), 1e-5);
  unary("gelu_exact", [](Var x) { return gelu_exact(x); }, Fill::uniform(-6, 6), 2e-6);
  unary("silu", [](Var x) { return silu(x); }, Fill::uniform(-8, 8), 1e-6);
  unary(
      "leaky_relu", [](Var x) { return leaky_relu(x, 0.2f); },
      Fill::function([](auto i) { return (static_cast<double>(i % 13) - 6.5) * 0.4; }), 1e-6);
  cases.push_back(unary_case("softcap", 64, Fill::normal(5), 0, [](Var x) { return softcap(x, 0); }));
  cases.back().shape += " no cap";
  cases.push_back(unary_case("clamp", 64, Fill::normal(5), 0, [](Var x) {
    return clamp(x, -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity());
  }));
  cases.back().shape += " no bounds";
  cases.push_back(unary_case("silu", 8, Fill::function([](auto i) { return i % 2 ? -100.0 : 100.0; }), 1e-5,
                             [](Var x) { return silu(x); }));
  cases.back().shape += " wide";
  cases.push_back(unary_case("gelu", 8, Fill::function([](auto i) { return i % 2 ? -40.0 : 40.0; }), 1e-5,
                             [](Var x) { return gelu(x); }));
  cases.back().shape += " wide";

  const auto binary = [&](const char* name, std::function<Var(Var, Var)> f, std::uint64_t n, std::uint64_t m,
                          CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = name;
    c.format = "F32";
    c.shape = cat("n=", n, " m=", m);
    c.inputs = {{"a", {DType::F32, {n}}, Fill::normal()}, {"b", {DType::F32, {m}}, Fill::normal()}};
    c.build = [f](Graph&, std::span<const Var> in) { return std::vector{f(in[0], in[1])}; };
    c.absolute = 1e-6;
    c.derivative = n <= 10000;
    if (c.derivative && m < n) c.absolute = 1e-4, c.relative = 1e-5;  // sums over the repeats
    c.use = use;
    cases.push_back(std::move(c));
  };
  for (const auto& [n, m] : {std::pair<std::uint64_t, std::uint64_t>{0, 0},
                             {1, 1},
                             {33, 33},
                             {1000, 8},
                             {1000, 1},
                             {8192, 1},
                             {kBeyondOneDimension, kBeyondOneDimension}}) {
    binary("add", [](Var a, Var b) { return add(a, b); }, n, m);
    binary("multiply", [](Var a, Var b) { return multiply(a, b); }, n, m);
  }
  binary("add_scaled", [](Var a, Var b) { return add_scaled(a, b, 0.5f); }, 100, 10);
  binary("bias", [](Var a, Var b) { return bias(a, b); }, 35, 7);
  binary("scale_by", [](Var a, Var b) { return scale_by(a, b); }, 96, 32);
  binary("scale_by", [](Var a, Var b) { return scale_by(a, b); }, 100, 32);  // the last repeat is cut
  cases.back().derivative = false;
  binary("scale_by", [](Var a, Var b) { return scale_by(a, b); }, 5, 8);
  cases.back().derivative = false;
  const std::uint64_t stream = 512 * 2560;  // a prompt's residual stream
  binary("add", [](Var a, Var b) { return add(a, b); }, stream, stream, CaseUse::bench);
  binary("add_scaled", [](Var a, Var b) { return add_scaled(a, b, 0.5f); }, stream, stream, CaseUse::bench);
  binary("multiply", [](Var a, Var b) { return multiply(a, b); }, stream, stream, CaseUse::bench);
  cases.back().derivative = true;
  binary("bias", [](Var a, Var b) { return bias(a, b); }, stream, 2560, CaseUse::bench);
  binary("scale_by", [](Var a, Var b) { return scale_by(a, b); }, stream, 2560, CaseUse::bench);
  binary("add_scaled", [](Var a, Var b) { return add_scaled(a, b, 0.5f); }, kBeyondOneDimension, kBeyondOneDimension);
  binary("add_scaled", [](Var a, Var b) { return add_scaled(a, b, 0.5f); }, 1, 1);

  for (const auto& [channels, t] : {std::pair<std::uint64_t, std::uint64_t>{6, 23}, {1, 1}, {64, 65}, {256, 12000}}) {
    OpCase c;
    c.op = "snake";
    c.format = "F32";
    c.shape = cat("C=", channels, " T=", t);
    c.inputs = {
        {"x", {DType::F32, {channels, t}}, channels >= 64 ? Fill::uniform(-40, 40) : Fill::normal()},
        {"a", {DType::F32, {channels}}, Fill::function([](auto i) { return 0.5 + 0.2 * static_cast<double>(i % 8); })}};
    c.build = [](Graph&, std::span<const Var> in) { return std::vector{snake(in[0], in[1])}; };
    c.absolute = channels >= 64 ? 5e-5 : 1e-5;  // f32 has the angle's product to a few 1e-6
    c.derivative = channels < 64;
    if (t > 10000) c.use = CaseUse::bench;
    cases.push_back(std::move(c));
  }
  OpCase twice;  // one kernel over the same input with other parameters in one submission
  twice.op = "scale";
  twice.format = "F32";
  twice.shape = "n=100 by 2 and by 3";
  twice.inputs = {{"x", {DType::F32, {100}}, Fill::normal()}};
  twice.build = [](Graph&, std::span<const Var> in) { return std::vector{scale(in[0], 2), scale(in[0], 3)}; };
  twice.absolute = 0;
  cases.push_back(std::move(twice));
  return cases;
}

std::vector<OpRefusal> elementwise_refusals() {
  return {
      {"add", "b does not divide a",
       [](Graph& g) { (void)add(g.input("a", {DType::F32, {8}}), g.input("b", {DType::F32, {3}})); },
       "add: b is F32 [3]"},
      {"scale", "a type other than F32", [](Graph& g) { (void)scale(g.input("x", {DType::U32, {8}}), 2); },
       "scale: x is U32 [8], expected F32"},
      {"bias", "a type other than F32",
       [](Graph& g) { (void)bias(g.input("x", {DType::F32, {8}}), g.input("b", {DType::F16, {8}})); },
       "bias: b is F16 [8], expected F32"},
      {"snake", "a by column",
       [](Graph& g) { (void)snake(g.input("x", {DType::F32, {2, 8}}), g.input("a", {DType::F32, {8}})); },
       "snake: b is F32 [8], expected F32 [2]"},
  };
}

}  // namespace rullama
