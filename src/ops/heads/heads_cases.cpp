#include "base/text.h"
#include "ops/attention/heads_attention.h"
#include "ops/heads/heads.h"
#include "ops/op_cases.h"

namespace rullama {
namespace {

struct Size {
  std::uint64_t rows, heads, kv_heads, d, slots;
  std::uint32_t rotated, position;
};

enum class Own : std::uint8_t { none, keys, keys_and_values };  // what the layer projects besides queries

OpCase heads_case(DType cache, Size s, Own own, bool factors, bool value_norm, double deviation = 1) {
  const std::uint64_t kv = own == Own::none ? 0 : s.kv_heads;
  const std::uint64_t columns = s.heads + kv * (own == Own::keys_and_values ? 2 : 1);
  OpCase c;
  c.op = "heads_to_cache";
  c.format = name(cache);
  c.shape = cat("rows=", s.rows, " heads=", s.heads, "/", kv, " d=", s.d, " slots=", s.slots, " rotated=", s.rotated,
                " position=", s.position, own == Own::keys ? " tied" : "", factors ? " factors" : "",
                value_norm ? " value norm" : "", deviation > 1 ? " wide" : "");
  c.inputs = {
      {"projected", {DType::F32, {s.rows, columns * s.d}}, Fill::normal(deviation)},
      {"q_norm", {DType::F32, {s.d}}, Fill::normal(0.3, 1), true},
      {"positions", {DType::U32, {s.rows}}, Fill::function([=](std::uint64_t i) { return s.position + double(i); })}};
  if (kv) {
    c.inputs.push_back({"k_norm", {DType::F32, {s.d}}, Fill::normal(0.3, 1), true});
    for (const std::string_view name : {"cache_k", "cache_v"})
      c.inputs.push_back({std::string(name), {cache, {s.slots, kv, s.d}}, Fill::normal(), true, true});
  }
  if (factors) c.inputs.push_back({"factors", {DType::F32, {s.rotated / 2}}, Fill::uniform(1, 8), true});
  c.build = [=](Graph&, std::span<const Var> in) {
    HeadInputs heads{.projected = in[0], .q_norm = in[1], .positions = in[2]};
    if (kv) heads.k_norm = in[3], heads.cache_k = in[4], heads.cache_v = in[5];
    if (factors) heads.factors = in.back();
    return std::vector{heads_to_cache(heads, {.n_heads = static_cast<std::uint32_t>(s.heads),
                                              .n_kv_heads = static_cast<std::uint32_t>(kv),
                                              .turn = {.rotated = s.rotated, .base = 10000, .position_scale = 0.5f},
                                              .value_norm = value_norm})};
  };
  c.absolute = s.position > 10000 ? 2e-3 : 2e-5;
  c.relative = cache == DType::F16 ? 1.0 / 1024 : 1e-5;  // either neighbour may be taken
  return c;
}

// The same and attention over the cache; projected to 72 columns by a weight of type `w`, unless that is F32.
OpCase attending(OpCase c, Size s, Own own, bool factors, bool value_norm, std::uint32_t window, DType w) {
  c.op = "heads_attention";
  const bool projected = w != DType::F32;
  if (window) c.shape += cat(" window=", window);
  const std::uint32_t kv = static_cast<std::uint32_t>(s.kv_heads);
  if (own == Own::none)
    for (const std::string_view name : {"cache_k", "cache_v"})
      c.inputs.push_back(
          {std::string(name), {*dtype_of_name(c.format), {s.slots, kv, s.d}}, Fill::normal(), true, true});
  if (projected) {
    c.shape += cat(" projected ", name(w));
    c.inputs.push_back({"w", {w, {72, s.heads * s.d}}, Fill::normal(), true});
  }
  c.build = [=](Graph&, std::span<const Var> in) {
    HeadInputs heads{.projected = in[0], .q_norm = in[1], .positions = in[2]};
    const bool keys = own != Own::none;
    const std::size_t at = keys ? 4 : 3u + factors;
    if (keys) heads.k_norm = in[3], heads.cache_k = in[4], heads.cache_v = in[5];
    if (factors) heads.factors = in[keys ? 6 : 3];
    return std::vector{heads_attention(heads,
                                       {.n_heads = static_cast<std::uint32_t>(s.heads),
                                        .n_kv_heads = kv,
                                        .turn = {.rotated = s.rotated, .base = 10000, .position_scale = 0.5f},
                                        .value_norm = value_norm},
                                       in[at], in[at + 1], {.scale = 0.125f, .window = window},
                                       projected ? in.back() : Var{})};
  };
  // F16 rounds to either neighbour, which moves scores
  c.absolute = dtype_of_name(c.format) == DType::F16 ? 1e-3 : 1e-4;
  if (projected) {
    c.absolute *= 20;  // sums of up to 512 products
    c.fast = 0.02;
  }
  return c;
}

}  // namespace

std::vector<OpCase> heads_attention_cases() {
  using enum Own;
  std::vector<OpCase> cases;
  const auto test = [&](DType cache, Size s, Own own, bool factors, bool value_norm, std::uint32_t window = 0,
                        DType w = DType::F32) {
    cases.push_back(attending(heads_case(cache, s, own, factors, value_norm), s, own, factors, value_norm, window, w));
  };
  for (const DType cache : {DType::F32, DType::F16}) {
    test(cache, {1, 4, 1, 64, 40, 64, 0}, keys_and_values, false, false);  // nothing but itself
    test(cache, {1, 6, 2, 64, 40, 32, 30}, keys_and_values, true, true);
    test(cache, {1, 8, 4, 64, 33, 64, 1000}, keys, false, true, 33);           // over a full ring
    test(cache, {1, 7, 1, 64, 2100, 64, 2050}, keys_and_values, false, true);  // in parts
    test(cache, {1, 3, 3, 64, 2100, 16, 70}, keys, true, false);
    test(cache, {1, 5, 1, 64, 50, 64, 44}, none, true, false);
    test(cache, {1, 4, 2, 64, 50, 12, 44}, keys_and_values, false, false);  // half of what turns is no multiple of 4
    test(cache, {3, 4, 2, 64, 50, 64, 40}, keys_and_values, false, true, 16);
    test(cache, {3, 4, 2, 64, 50, 64, 40}, none, false, true);
    test(cache, {1, 4, 1, 64, 40, 64, 0}, keys_and_values, false, false, 0, DType::Q8_0);  // most parts without keys
    test(cache, {1, 8, 2, 64, 700, 64, 600}, keys_and_values, false, true, 512, DType::Q4_0);
    test(cache, {1, 4, 2, 256, 300, 256, 400}, none, true, false, 0, DType::Q4_K);               // over a full ring
    test(cache, {1, 8, 1, 64, 20000, 64, 17000}, keys_and_values, false, true, 0, DType::Q8_0);  // in many parts
    test(cache, {1, 4, 2, 64, 50, 64, 40}, keys, false, true, 0, DType::F16);
    test(cache, {3, 4, 2, 64, 50, 64, 40}, keys_and_values, false, true, 16, DType::Q8_0);
  }
  test(DType::F32, {0, 4, 2, 64, 50, 64, 40}, keys_and_values, false, true);
  test(DType::F32, {0, 4, 2, 64, 50, 64, 40}, keys_and_values, false, true, 0, DType::Q8_0);
  return cases;
}

std::vector<OpCase> heads_cases() {
  using enum Own;
  std::vector<OpCase> cases;
  for (const DType cache : {DType::F32, DType::F16}) {
    cases.push_back(heads_case(cache, {3, 4, 2, 8, 8, 8, 5}, keys_and_values, false, false));
    cases.push_back(heads_case(cache, {3, 4, 2, 8, 8, 4, 5}, keys_and_values, true, true));
    cases.push_back(heads_case(cache, {1, 3, 1, 10, 4, 6, 9}, keys, true, true));  // odd pairs, a part turns
    cases.push_back(heads_case(cache, {1, 8, 2, 256, 33, 256, 131071}, keys_and_values, false, true));
    cases.push_back(heads_case(cache, {5, 2, 1, 512, 16, 128, 40}, keys, true, true));
    cases.push_back(heads_case(cache, {2, 1, 1, 2, 2, 2, 1}, keys_and_values, false, false));
    cases.push_back(heads_case(cache, {0, 2, 1, 8, 4, 8, 0}, keys_and_values, false, false));
    cases.push_back(heads_case(cache, {2, 2, 1, 64, 4, 64, 0}, keys_and_values, false, false, 1e5));  // past F16
    cases.push_back(heads_case(cache, {70, 40, 8, 64, 80, 64, 0}, keys_and_values, false, true));
    cases.push_back(heads_case(cache, {1, 4, 1, 256, 1024, 256, 900}, keys_and_values, false, false));
    cases.back().use = CaseUse::bench;
  }
  cases.push_back(heads_case(DType::F32, {3, 4, 2, 16, 8, 8, 5}, none, true, false));
  return cases;
}

std::vector<OpRefusal> heads_refusals() {
  struct Change {
    TensorDesc projected{DType::F32, {3, 64}}, norm{DType::F32, {8}}, cache{DType::F32, {4, 2, 8}};
    TensorDesc positions{DType::U32, {3}};
    std::uint32_t rotated = 8;
    bool inverse = false;
  };
  const auto refusal = [](std::string what, Change c, std::string message) {
    return OpRefusal{
        "heads_to_cache", std::move(what),
        [=](Graph& g) {
          (void)heads_to_cache(
              {.projected = g.input("projected", c.projected),
               .q_norm = g.input("q_norm", c.norm),
               .k_norm = g.input("k_norm", c.norm),
               .positions = g.input("positions", c.positions),
               .cache_k = g.input("cache_k", c.cache),
               .cache_v = g.input("cache_v", c.cache)},
              {.n_heads = 4, .n_kv_heads = 2, .turn = {.rotated = c.rotated, .base = 10000, .inverse = c.inverse}});
        },
        std::move(message)};
  };
  Change columns, odd, cache, positions, rows, rotated, inverse;
  columns.projected.shape = {3, 56};
  odd.norm.shape = {7};
  cache.cache.shape = {4, 1, 8};
  positions.positions.shape = {2};
  rows.cache.shape = {2, 2, 8};
  rotated.rotated = 10;
  inverse.inverse = true;
  return {
      refusal("columns that are no heads", columns,
              "heads_to_cache: projected is F32 [3, 56], expected F32 [rows, 64] or [rows, 48]"),
      refusal("an odd width", odd, "heads_to_cache: q_norm is F32 [7], expected an even head width"),
      refusal("a cache of other heads", cache,
              "heads_to_cache: cache_k is F32 [4, 1, 8], expected F32 or F16 [slots, 2, 8]"),
      refusal("too few positions", positions, "heads_to_cache: positions is U32 [2], expected U32 [3]"),
      refusal("more rows than slots", rows, "heads_to_cache: 3 rows do not fit into a cache of 2 slots"),
      refusal("more turns than elements", rotated, "heads_to_cache: 10 elements turn, but a head has 8"),
      refusal("turning back", inverse, "heads_to_cache: heads are turned forward only"),
  };
}

}  // namespace rullama
