#include "base/text.h"
#include "ops/attention/attention.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

enum class Form : std::uint8_t { causal, packed, all, region, probabilities };

struct AttentionCase {
  std::uint64_t rows = 1, heads = 8, kv_heads = 1, d = 256, slots = 1;
  std::uint32_t position = 0, window = 0;
  DType type = DType::F32;
  Form form = Form::causal;
  bool activations = false;  // k and v are activations: differentiable
  std::uint32_t prompt = 0;  // region
  double spread = 0.5;       // q, k and v lie in +-spread
  float scale = 1;
};

OpCase make(const AttentionCase& a, CaseUse use, double absolute = 1e-5) {
  static constexpr const char* kNames[] = {"attention", "attention", "bidirectional_attention", "region_attention",
                                           "attention_probabilities"};
  static constexpr const char* kForms[] = {"", " packed", "", "", ""};
  OpCase c;
  c.op = kNames[static_cast<int>(a.form)];
  c.format = name(a.type);
  c.shape = cat("rows=", a.rows, " slots=", a.slots, " heads=", a.heads, "/", a.kv_heads, " d=", a.d,
                " position=", a.position, " window=", a.window, kForms[static_cast<int>(a.form)],
                a.activations ? " activations" : "", a.form == Form::region ? cat(" prompt=", a.prompt) : "",
                a.spread > 1 ? " wide" : "", a.scale != 1 ? " scaled" : "");
  const auto values = Fill::uniform(-a.spread, a.spread);
  const TensorDesc kv{a.type, {a.slots, a.kv_heads, a.d}};
  c.inputs.push_back({"q", {DType::F32, {a.rows, a.heads, a.d}}, values});
  c.inputs.push_back({"k", kv, values, !a.activations});
  if (a.form != Form::probabilities) c.inputs.push_back({"v", kv, values, !a.activations});
  if (a.form != Form::all)
    c.inputs.push_back({"positions", {DType::U32, {a.rows}}, Fill::function([a](std::uint64_t i) {
                          return a.position + static_cast<double>(i);
                        })});
  if (a.form == Form::packed)  // sequences of 7; the last row sees nothing
    c.inputs.push_back({"first", {DType::U32, {a.rows}}, Fill::function([a](std::uint64_t i) {
                          return static_cast<double>(i + 1 == a.rows ? a.rows + 5 : i / 7 * 7);
                        })});
  if (a.form == Form::region)
    c.inputs.push_back({"prompt", {DType::U32, {1}}, Fill::function([a](std::uint64_t) { return a.prompt; })});
  c.build = [a](Graph&, std::span<const Var> in) -> std::vector<Var> {
    const AttentionOptions options{.scale = a.scale, .window = a.window};
    switch (a.form) {
      case Form::causal: return {attention(in[0], in[1], in[2], in[3], options)};
      case Form::packed: return {attention(in[0], in[1], in[2], in[3], options, in[4])};
      case Form::all: return {bidirectional_attention(in[0], in[1], in[2], options)};
      case Form::region: return {region_attention(in[0], in[1], in[2], in[3], in[4], options)};
      case Form::probabilities: return {attention_probabilities(in[0], in[1], in[2], options)};
    }
    return {};
  };
  c.absolute = absolute;
  // 16-bit factors, of the kernel for matrix units
  if (a.type == DType::F16 && a.d >= 256 && a.rows * a.heads / a.kv_heads >= 32) c.fast = a.spread > 1 ? 0.03 : 2e-3;
  c.derivative = a.activations;
  c.use = use;
  return c;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  const auto test = [&](const AttentionCase& a, double absolute = 1e-5) {
    cases.push_back(make(a, CaseUse::test, absolute));
  };
  const auto bench = [&](const AttentionCase& a) { cases.push_back(make(a, CaseUse::bench)); };

  // one query, over histories that end within and at a block
  for (const std::uint32_t t : {1, 3, 8, 9, 33, 64, 65, 100, 1000, 5000}) test({.slots = t, .position = t - 1});
  test({.slots = 5, .position = 4, .window = 2});
  test({.slots = 1000, .position = 999, .window = 512});
  test({.slots = 1000, .position = 999, .window = 512, .type = DType::F16});
  test({.slots = 64, .position = 20, .window = 1000});  // a window beyond the history
  test({.slots = 300, .position = 140});                // a cache that is not full
  for (const std::uint32_t window : {1, 32, 33, 34})    // at the boundary of the history
    for (const std::uint64_t rows : {1, 5})
      test({.rows = rows,
            .heads = 2,
            .d = 64,
            .slots = 33,
            .position = static_cast<std::uint32_t>(33 - rows),
            .window = window});
  test({.heads = 2, .d = 64, .slots = 131072, .position = 131071, .type = DType::F16});  // the longest context
  // at the boundary of one dispatch and parts: groups of 1, 3 and 7; parts without keys; few keys of a large cache
  for (const std::uint64_t t : {1024, 1025, 1500})
    test({.heads = 7, .d = 64, .slots = t, .position = static_cast<std::uint32_t>(t - 1)});
  test({.heads = 3, .kv_heads = 3, .d = 64, .slots = 1100, .position = 1099});
  test({.heads = 6, .kv_heads = 2, .d = 64, .slots = 4096, .position = 2100, .type = DType::F16});
  test({.heads = 6, .kv_heads = 2, .d = 60, .slots = 4096, .position = 100});
  test({.heads = 2, .kv_heads = 2, .d = 20, .slots = 1500, .position = 4000, .window = 1400});
  // many queries
  for (const std::uint32_t window : {0, 16})
    for (const std::uint64_t d : {64, 128, 256, 512})
      test({.rows = 17, .heads = 4, .kv_heads = 2, .d = d, .slots = 100, .position = 83, .window = window});
  for (const std::uint64_t rows : {2, 3, 8, 9, 33, 65, 100})
    test({.rows = rows, .heads = 2, .kv_heads = 1, .d = 64, .slots = rows, .scale = 0.125f});
  test({.rows = 130, .heads = 2, .kv_heads = 2, .d = 16, .slots = 200, .position = 70, .window = 65});
  for (const std::uint64_t kv_heads : {1, 2, 4, 8})
    for (const DType type : {DType::F32, DType::F16})
      test({.rows = 5, .heads = 8, .kv_heads = kv_heads, .d = 32, .slots = 50, .position = 41, .type = type});
  test({.rows = 4, .heads = 7, .kv_heads = 1, .d = 32, .slots = 50, .position = 41});
  test({.rows = 12, .heads = 6, .kv_heads = 2, .d = 32, .slots = 50, .position = 30});
  test({.rows = 3, .heads = 16, .kv_heads = 1, .d = 128, .slots = 40, .position = 30, .type = DType::F16});
  for (const std::uint64_t d : {1, 6, 8, 20, 80, 132, 260})
    test({.rows = 9, .heads = 2, .kv_heads = 1, .d = d, .slots = 40, .position = 31});
  for (const std::uint64_t d : {20, 80})
    test({.heads = 4, .kv_heads = 2, .d = d, .slots = 90, .position = 80, .type = DType::F16});
  // a ring that has been written over many times
  test({.rows = 9, .heads = 4, .d = 64, .slots = 40, .position = 1000, .window = 32});
  test({.rows = 1, .heads = 4, .d = 64, .slots = 33, .position = 131071, .window = 32, .type = DType::F16});
  test({.rows = 40, .heads = 4, .d = 64, .slots = 103, .position = 131000, .window = 64, .type = DType::F16});
  test({.rows = 20, .heads = 2, .d = 64, .slots = 20, .spread = 4}, 2e-4);  // scores of +-150
  test({.rows = 30, .heads = 2, .d = 32, .slots = 30, .form = Form::packed});
  test({.rows = 0, .d = 8});
  // tiles of matrix units: ends of tiles of queries and keys, rings, windows, parts, scores that rise
  for (const std::uint64_t d : {64, 256, 512})
    for (const std::uint64_t rows : {9, 67})
      test({.rows = rows, .heads = 4, .d = d, .slots = 150, .position = 80, .type = DType::F16, .scale = 0.5f});
  for (const std::uint64_t d : {64, 256, 512})
    test({.rows = 40, .heads = 6, .kv_heads = 2, .d = d, .slots = 1000, .position = 900, .type = DType::F16});
  test({.rows = 70, .heads = 4, .d = 256, .slots = 103, .position = 131000, .window = 33, .type = DType::F16});
  test({.rows = 33, .heads = 1, .d = 512, .slots = 600, .position = 1000, .window = 300, .type = DType::F16});
  test({.rows = 130,
        .heads = 2,
        .kv_heads = 2,
        .d = 256,
        .slots = 400,
        .position = 200,
        .type = DType::F16,
        .spread = 4},
       3e-4);
  for (const std::uint64_t d : {64, 256})  // enough queries for the larger tiles
    test({.rows = 1030, .heads = 8, .d = d, .slots = 1100, .position = 3000, .window = 70, .type = DType::F16});
  test({.rows = 30, .heads = 2, .d = 256, .slots = 30, .type = DType::F16, .form = Form::packed});
  test({.rows = 75, .heads = 3, .kv_heads = 3, .d = 256, .slots = 75, .type = DType::F16, .form = Form::all});
  test({.rows = 50, .heads = 2, .d = 256, .slots = 50, .window = 9, .type = DType::F16, .form = Form::all});
  test({.rows = 40,
        .heads = 4,
        .kv_heads = 2,
        .d = 256,
        .slots = 90,
        .position = 50,
        .window = 10,
        .type = DType::F16,
        .form = Form::region,
        .prompt = 70});
  // derivatives
  test({.rows = 5, .heads = 2, .d = 8, .slots = 5, .activations = true});
  test(
      {.rows = 70, .heads = 8, .kv_heads = 2, .d = 64, .slots = 70, .window = 16, .activations = true, .scale = 0.25f});
  test({.rows = 33, .heads = 2, .d = 256, .slots = 33, .activations = true, .scale = 0.0625f});
  test({.rows = 9, .heads = 3, .kv_heads = 3, .d = 6, .slots = 9, .window = 4, .activations = true});
  test({.rows = 1, .heads = 1, .d = 1, .slots = 1, .activations = true});
  test({.rows = 10, .heads = 8, .d = 512, .slots = 10, .activations = true, .scale = 0.044f});
  test({.rows = 10, .heads = 4, .kv_heads = 4, .d = 128, .slots = 10, .window = 10, .activations = true});
  test({.rows = 11, .heads = 6, .kv_heads = 2, .d = 64, .slots = 11, .window = 1, .activations = true});
  test({.rows = 12, .heads = 2, .d = 16, .slots = 12, .activations = true, .spread = 4}, 2e-4);
  test({.rows = 12,
        .heads = 2,
        .d = 16,
        .slots = 12,
        .window = 3,
        .form = Form::region,
        .activations = true,
        .prompt = 5});
  test({.rows = 23, .heads = 4, .kv_heads = 2, .d = 20, .slots = 23, .form = Form::packed, .activations = true});
  test({.rows = 13, .heads = 2, .d = 16, .slots = 13, .window = 4, .form = Form::all, .activations = true});
  // all see all
  for (const std::uint64_t n : {1, 8, 31, 33, 100, 102, 103})
    test({.rows = n, .heads = 3, .kv_heads = 3, .d = 64, .slots = n, .form = Form::all});
  test({.rows = 50, .heads = 3, .d = 16, .slots = 50, .window = 9, .form = Form::all});
  // prompt and canvas
  test({.rows = 9, .heads = 4, .kv_heads = 2, .d = 8, .slots = 9, .form = Form::region, .prompt = 3});
  test({.rows = 12, .heads = 2, .d = 16, .slots = 12, .window = 3, .form = Form::region, .prompt = 5});
  test({.rows = 7, .heads = 3, .kv_heads = 3, .d = 6, .slots = 7, .window = 2, .form = Form::region, .prompt = 4});
  test({.rows = 5, .heads = 2, .kv_heads = 2, .d = 4, .slots = 5, .form = Form::region, .prompt = 5});
  test({.rows = 8, .heads = 2, .d = 16, .slots = 40, .position = 30, .window = 10, .form = Form::region, .prompt = 30});
  // probabilities
  for (const std::uint32_t t : {1, 9, 100}) test({.slots = t, .position = t - 1, .form = Form::probabilities});
  for (const std::uint32_t window : {0, 16})
    test({.rows = 17,
          .heads = 4,
          .kv_heads = 2,
          .d = 20,
          .slots = 100,
          .position = 83,
          .window = window,
          .form = Form::probabilities});
  test({.rows = 3,
        .heads = 2,
        .d = 64,
        .slots = 40,
        .position = 1000,
        .window = 32,
        .type = DType::F16,
        .form = Form::probabilities});

  bench({.heads = 4, .slots = 4096, .position = 4095, .type = DType::F16});
  bench({.heads = 8, .kv_heads = 4, .slots = 32768, .position = 32767, .type = DType::F16});
  bench({.heads = 4, .slots = 1023, .position = 2000, .window = 512, .type = DType::F16});
  for (const DType type : {DType::F32, DType::F16})
    bench({.rows = 4096, .heads = 8, .kv_heads = 4, .slots = 4096, .type = type, .scale = 0.0625f});
  bench({.rows = 2048, .heads = 8, .slots = 2048, .activations = true, .scale = 0.0625f});
  bench({.rows = 2304, .heads = 16, .kv_heads = 16, .d = 72, .slots = 2304, .form = Form::all});
  bench({.rows = 768, .heads = 8, .kv_heads = 2, .slots = 768, .window = 512, .form = Form::region, .prompt = 512});
  bench({.rows = 512, .heads = 8, .kv_heads = 2, .slots = 512, .form = Form::probabilities});
  bench({.rows = 512, .heads = 8, .kv_heads = 2, .d = 512, .slots = 4096, .position = 3584, .scale = 0.0625f});
  bench({.rows = 1024, .heads = 8, .d = 512, .slots = 2048, .position = 1024, .type = DType::F16});
  bench({.rows = 1024, .heads = 8, .slots = 1535, .position = 1024, .window = 512, .type = DType::F16});
  bench(
      {.rows = 512, .heads = 4, .slots = 1023, .position = 2048, .window = 512, .type = DType::F16, .scale = 0.0625f});
  return cases;
}

std::vector<OpRefusal> attention_refusals() {
  const auto refusal = [](std::string what, Shape q, TensorDesc k, std::string message, AttentionOptions options = {}) {
    return OpRefusal{"attention", std::move(what),
                     [=](Graph& g) {
                       Var keys = g.input("k", k);
                       (void)attention(g.input("q", {DType::F32, q}), keys, keys, g.input("p", {DType::U32, {3}}),
                                       options);
                     },
                     std::move(message)};
  };
  const TensorDesc k{DType::F32, {8, 2, 4}};
  return {
      refusal("q of two dimensions", {3, 16}, k, "attention: q is F32 [3, 16], expected F32 [rows, heads, width]"),
      refusal("heads that cannot be shared", {3, 5, 4}, k, "attention: 5 query heads cannot share 2 key/value heads"),
      refusal("another width", {3, 4, 8}, k,
              "attention: k is F32 [8, 2, 4], expected F32 or F16 [positions, heads, 8]"),
      refusal("too large a width", {3, 4, 516}, {DType::F32, {8, 2, 516}},
              "attention: a head width of 516, expected 1 to 512"),
      refusal("quantised keys", {3, 4, 32}, {DType::Q8_0, {8, 2, 32}}, "attention: k is Q8_0 [8, 2, 32]"),
      refusal("halves of an odd width", {3, 4, 6}, {DType::F16, {8, 2, 6}},
              "a head width that is a multiple of 4 for F16"),
      refusal("positions of another length", {4, 4, 4}, k, "attention: positions is U32 [3], expected U32 [4]"),
      refusal("no keys", {3, 4, 4}, {DType::F32, {0, 2, 4}}, "attention: k is F32 [0, 2, 4], expected at least one"),
      refusal("scale of zero", {3, 4, 4}, k, "attention: scale is 0", {.scale = 0}),
      {"attention", "values of another shape",
       [](Graph& g) {
         (void)attention(g.input("q", {DType::F32, {3, 4, 4}}), g.input("k", {DType::F32, {8, 2, 4}}),
                         g.input("v", {DType::F32, {9, 2, 4}}), g.input("p", {DType::U32, {3}}), {});
       },
       "attention: v is F32 [9, 2, 4], expected F32 [8, 2, 4]"},
      {"attention", "first of another length",
       [](Graph& g) {
         const Var keys = g.input("k", {DType::F32, {8, 2, 4}});
         (void)attention(g.input("q", {DType::F32, {3, 4, 4}}), keys, keys, g.input("p", {DType::U32, {3}}), {},
                         g.input("first", {DType::U32, {4}}));
       },
       "attention: first is U32 [4], expected U32 [3]"},
      {"region_attention", "two prompts",
       [](Graph& g) {
         const Var keys = g.input("k", {DType::F32, {8, 2, 4}});
         (void)region_attention(g.input("q", {DType::F32, {3, 4, 4}}), keys, keys, g.input("p", {DType::U32, {3}}),
                                g.input("prompt", {DType::U32, {2}}), {});
       },
       "region_attention: prompt is U32 [2], expected U32 [1]"},
      {"attention_probabilities", "keys of another width",
       [](Graph& g) {
         (void)attention_probabilities(g.input("q", {DType::F32, {3, 4, 4}}), g.input("k", {DType::F32, {8, 2, 5}}),
                                       g.input("p", {DType::U32, {3}}), {});
       },
       "attention: k is F32 [8, 2, 5], expected F32 or F16 [positions, heads, 4]"},
  };
}

}  // namespace rullama
