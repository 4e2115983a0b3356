#include "base/text.h"
#include "ops/conv/conv.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

using enum DType;

enum class Kind : std::uint8_t { one, two, two_channels_last, transposed, causal };

struct ConvCase {
  Kind kind = Kind::one;
  Shape x, w;
  DType type = F32;
  std::uint32_t stride = 1, padding = 0, dilation = 1, groups = 1, out_padding = 0;
  bool biased = false;
};

OpCase make(const ConvCase& v, CaseUse use = CaseUse::test, double absolute = 2e-5) {
  static constexpr const char* kNames[] = {"conv_1d", "conv_2d", "conv_2d_channels_last", "conv_1d_transposed",
                                           "causal_conv_1d"};
  OpCase c;
  c.op = kNames[static_cast<int>(v.kind)];
  c.format = name(v.type);
  c.shape = cat("x=", v.x.str(), " w=", v.w.str(), " stride=", v.stride, " padding=", v.padding,
                v.dilation > 1 ? cat(" dilation=", v.dilation) : "", v.groups > 1 ? cat(" groups=", v.groups) : "",
                v.out_padding ? cat(" out_padding=", v.out_padding) : "", v.biased ? " biased" : "");
  c.inputs = {{"x", {F32, v.x}, Fill::uniform(-1, 1)}, {"w", {v.type, v.w}, Fill::normal(0.2), true}};
  const std::uint64_t outputs = v.kind == Kind::transposed ? v.w[1] * v.groups : v.w[0];
  if (v.biased) c.inputs.push_back({"bias", {F32, {outputs}}, Fill::normal(), true});
  c.build = [v](Graph&, std::span<const Var> in) -> std::vector<Var> {
    const Var bias = v.biased ? in[2] : Var{};
    const ConvOptions o{v.stride, v.padding, v.dilation, v.groups, bias};
    switch (v.kind) {
      case Kind::one: return {conv_1d(in[0], in[1], o)};
      case Kind::two: return {conv_2d(in[0], in[1], o)};
      case Kind::two_channels_last: return {conv_2d_channels_last(in[0], in[1], o)};
      case Kind::transposed:
        return {conv_1d_transposed(in[0], in[1], {v.stride, v.padding, v.groups, v.out_padding, bias})};
      case Kind::causal: return {causal_conv_1d(in[0], in[1])};
    }
    return {};
  };
  c.absolute = absolute;
  c.relative = 1e-5;
  c.use = use;
  return c;
}

}  // namespace

std::vector<OpCase> conv_cases() {
  std::vector<OpCase> cases;
  const auto test = [&](const ConvCase& v) { cases.push_back(make(v)); };
  const auto bench = [&](const ConvCase& v) { cases.push_back(make(v, CaseUse::bench, 1e-3)); };

  for (const DType type : {F32, F16, BF16}) {
    test({.x = {4, 20}, .w = {6, 4, 5}, .type = type, .padding = 2, .biased = true});
    test({.x = {3, 31}, .w = {1, 3, 3}, .type = type, .stride = 2, .padding = 1});
    test({.x = {8, 17}, .w = {8, 4, 3}, .type = type, .padding = 2, .dilation = 2, .groups = 2, .biased = true});
    test({.x = {6, 13}, .w = {6, 1, 3}, .type = type, .padding = 1, .groups = 6});  // depthwise
    test({.kind = Kind::transposed,
          .x = {4, 9},
          .w = {4, 6, 5},
          .type = type,
          .stride = 2,
          .padding = 2,
          .biased = true});
    test({.kind = Kind::two, .x = {3, 7, 5}, .w = {4, 3, 3, 3}, .type = type, .padding = 1, .biased = true});
    test({.kind = Kind::two_channels_last, .x = {3, 32, 48}, .w = {20, 3, 16, 16}, .type = type, .stride = 16});
    test({.kind = Kind::two_channels_last,
          .x = {1, 20, 13},
          .w = {7, 1, 3, 3},
          .type = type,
          .stride = 2,
          .padding = 1});
    test({.kind = Kind::causal, .x = {7, 6}, .w = {6, 5}, .type = type});
  }
  test({.x = {1, 1}, .w = {1, 1, 1}});
  test({.x = {1, 1}, .w = {5, 1, 3}, .padding = 1});
  test({.x = {22, 100}, .w = {9, 22, 12}, .stride = 6, .padding = 3, .biased = true});  // stride beyond the tile
  test({.x = {65, 33}, .w = {33, 65, 7}, .padding = 3});
  test({.x = {2, 9}, .w = {3, 2, 3}, .padding = 12, .dilation = 5});  // all of some windows is padding
  test({.x = {3, 0}, .w = {4, 3, 3}, .padding = 1});
  test({.x = {1, 300000}, .w = {56, 1, 1}});  // more than 65,535 workgroups
  test({.kind = Kind::transposed,
        .x = {5, 7},
        .w = {5, 1, 3},
        .stride = 2,
        .padding = 1,
        .groups = 5,
        .out_padding = 1});
  test({.kind = Kind::transposed, .x = {16, 11}, .w = {16, 8, 20}, .stride = 10, .padding = 5, .biased = true});
  test({.kind = Kind::transposed, .x = {6, 30}, .w = {6, 4, 3}, .stride = 1, .padding = 1, .groups = 2});
  test({.kind = Kind::transposed, .x = {2, 5}, .w = {2, 3, 2}, .stride = 4, .out_padding = 3});  // gaps stay empty
  test({.kind = Kind::transposed, .x = {2, 0}, .w = {2, 3, 2}, .stride = 4});
  test({.kind = Kind::two, .x = {4, 9, 8}, .w = {4, 1, 3, 3}, .stride = 2, .padding = 1, .groups = 4, .biased = true});
  test({.kind = Kind::two, .x = {2, 1, 1}, .w = {3, 2, 1, 1}});
  test({.kind = Kind::two, .x = {3, 11, 12}, .w = {5, 3, 5, 2}, .dilation = 2});
  test({.kind = Kind::causal, .x = {2, 9}, .w = {9, 5}});  // a kernel longer than the past
  test({.kind = Kind::causal, .x = {0, 9}, .w = {9, 5}});
  test({.kind = Kind::causal, .x = {130, 64}, .w = {64, 5}});

  for (const DType type : {F32, F16}) {
    bench({.x = {256, 12000}, .w = {256, 256, 11}, .type = type, .padding = 25, .dilation = 5});
    bench({.x = {512, 1200}, .w = {512, 512, 3}, .type = type, .padding = 1});
    bench({.kind = Kind::transposed, .x = {512, 1200}, .w = {512, 256, 20}, .type = type, .stride = 10, .padding = 5});
    bench({.kind = Kind::two, .x = {128, 40, 256}, .w = {128, 128, 3, 3}, .type = type, .padding = 1});
    bench({.kind = Kind::two_channels_last, .x = {3, 768, 768}, .w = {768, 3, 16, 16}, .type = type, .stride = 16});
  }
  bench({.kind = Kind::causal, .x = {750, 1024}, .w = {1024, 5}});
  return cases;
}

std::vector<OpRefusal> conv_refusals() {
  const auto refusal = [](std::string what, TensorDesc x, TensorDesc w, ConvOptions options, std::string message) {
    return OpRefusal{"conv_1d", std::move(what),
                     [=](Graph& g) { (void)conv_1d(g.input("x", x), g.input("w", w), options); }, std::move(message)};
  };
  const TensorDesc x{F32, {4, 9}}, w{F32, {6, 4, 3}};
  return {
      refusal("x of three dimensions", {F32, {1, 4, 9}}, w, {}, "conv_1d: x is F32 [1, 4, 9], expected F32 of two"),
      refusal("quantised weights", x, {Q8_0, {6, 4, 32}}, {}, "conv_1d: w is Q8_0 [6, 4, 32], expected F32, F16 or"),
      refusal("channels that differ", x, {F32, {6, 3, 3}}, {}, "conv_1d: w is F32 [6, 3, 3], expected 4 as its second"),
      refusal("groups that do not divide the channels", x, w, {.groups = 3},
              "conv_1d: 3 groups cannot share 4 channels"),
      refusal("groups that do not divide the outputs", x, {F32, {6, 1, 3}}, {.groups = 4},
              "conv_1d: 4 groups cannot share 6 output channels"),
      refusal("no groups", x, w, {.groups = 0}, "conv_1d: 0 groups cannot share 4 channels"),
      refusal("no stride", x, w, {.stride = 0}, "conv_1d: stride 0 and dilation 1, expected 1 or more"),
      refusal("a kernel longer than x", x, w, {.dilation = 5},
              "conv_1d: x is F32 [4, 9], expected an extent that holds"),
      {"conv_1d", "a bias of another length",
       [=](Graph& g) { (void)conv_1d(g.input("x", x), g.input("w", w), {.bias = g.input("b", {F32, {4}})}); },
       "conv_1d: bias is F32 [4], expected F32 [6]"},
      {"conv_2d", "a kernel of one direction",
       [=](Graph& g) { (void)conv_2d(g.input("x", {F32, {4, 9, 9}}), g.input("w", w)); },
       "conv_2d: w is F32 [6, 4, 3], expected F32, F16 or BF16 of 4 dimensions"},
      {"conv_1d_transposed", "output channels first",
       [=](Graph& g) { (void)conv_1d_transposed(g.input("x", x), g.input("w", w)); },
       "conv_1d_transposed: w is F32 [6, 4, 3], expected 4 as its first dimension"},
      {"conv_1d_transposed", "an output padding of a stride",
       [=](Graph& g) {
         (void)conv_1d_transposed(g.input("x", x), g.input("w", {F32, {4, 2, 3}}), {.stride = 2, .out_padding = 2});
       },
       "conv_1d_transposed: an output padding of 2, expected less than the stride, 2"},
      {"causal_conv_1d", "weights of other channels",
       [=](Graph& g) { (void)causal_conv_1d(g.input("x", {F32, {9, 6}}), g.input("w", {F32, {5, 5}})); },
       "causal_conv_1d: w is F32 [5, 5], expected 6 as its first dimension"},
  };
}

}  // namespace rullama
