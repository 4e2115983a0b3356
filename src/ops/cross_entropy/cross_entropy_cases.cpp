#include "base/text.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/op_cases.h"
#include "ops/slice/slice.h"

namespace rullama {
namespace {

constexpr double kMasked = 4294967295.0;

OpCase case_of(std::uint64_t rows, std::uint64_t v, Fill logits, Fill targets, std::string what = "") {
  OpCase c;
  c.op = "cross_entropy";
  c.format = "F32";
  c.shape = cat("rows=", rows, " V=", v, what);
  c.inputs = {{"logits", {DType::F32, {rows, v}}, std::move(logits)},
              {"targets", {DType::U32, {rows}}, std::move(targets)}};
  c.build = [](Graph&, std::span<const Var> in) {
    const auto [loss, dlogits] = cross_entropy_with_gradient(in[0], in[1]);
    return std::vector{loss, dlogits};
  };
  c.absolute = 1e-5;
  c.relative = 1e-5;
  return c;
}

}  // namespace

std::vector<OpCase> cross_entropy_cases() {
  std::vector<OpCase> cases;
  for (const std::uint64_t v : {1, 3, 8, 9, 33, 64, 65, 100, 1000})
    cases.push_back(case_of(3, v, Fill::uniform(-2, 2), Fill::ids(static_cast<double>(v))));
  cases.push_back(case_of(1, 4096, Fill::uniform(-2, 2), Fill::function([](auto) { return 137.0; })));
  const Fill wide = Fill::function([](std::uint64_t i) {
    const double x = static_cast<double>(i * 7919 % 1000) / 500 - 1;
    return i % 19 == 0 ? 50 * x : 2 * x;
  });
  cases.push_back(case_of(2, 4096, wide, Fill::ids(4096), " wide"));
  cases.push_back(case_of(1, 256, Fill::function([](auto i) { return i % 2 ? 1e4 : -1e4; }), Fill::ids(256), " 1e4"));
  cases.push_back(case_of(3, 512, Fill::normal(), Fill::function([](auto) { return kMasked; }), " masked"));
  cases.push_back(
      case_of(4, 512, Fill::normal(), Fill::function([](auto i) { return i % 2 ? 512.0 : 511.0; }), " half"));
  cases.push_back(case_of(2, 262144, Fill::normal(3), Fill::ids(262144)));
  cases.push_back(case_of(1, 262144, wide, Fill::ids(262144), " wide"));
  cases.push_back(case_of(2, 262144, Fill::normal(3), Fill::function([](auto) { return kMasked; }), " masked"));
  cases.push_back(case_of(70000, 5, Fill::normal(), Fill::ids(6)));
  cases.push_back(case_of(0, 16, Fill::normal(), Fill::ids(16)));
  cases.push_back(case_of(2, 0, Fill::normal(), Fill::ids(1)));
  cases.push_back(case_of(256, 262144 / 8, Fill::normal(3), Fill::ids(262144 / 8)));
  cases.back().use = CaseUse::bench;
  for (const std::uint64_t v : {7, 64}) {
    OpCase c =
        case_of(3, v, Fill::normal(), Fill::function([](auto i) { return i == 1 ? kMasked : 2.0; }), " derivative");
    c.build = [](Graph&, std::span<const Var> in) { return std::vector{cross_entropy(in[0], in[1])}; };
    c.derivative = true;
    cases.push_back(std::move(c));
  }

  // Three uneven tiles.
  OpCase tiles = case_of(5, 1000, Fill::normal(4), Fill::ids(1010), " tiles");
  tiles.inputs.push_back({"weights", {DType::F32, {5}}, Fill::uniform(0.1, 1)});
  tiles.build = [](Graph&, std::span<const Var> in) {
    const std::uint64_t starts[] = {0, 100, 133, 1000};
    const auto tile = [&](std::size_t i) { return VocabularyTile{starts[i], 1000}; };
    const auto part = [&](std::size_t i) { return columns(in[0], starts[i], starts[i + 1] - starts[i]); };
    Var stats;
    for (std::size_t i = 0; i < 3; i++) stats = softmax_stats(part(i), in[1], tile(i), stats);
    std::vector<Var> out{cross_entropy_loss(stats, in[1], 1000)};
    for (std::size_t i = 0; i < 3; i++) out.push_back(cross_entropy_gradient(part(i), stats, in[1], in[2], tile(i)));
    return out;
  };
  cases.push_back(std::move(tiles));
  return cases;
}

std::vector<OpRefusal> cross_entropy_refusals() {
  return {{"cross_entropy", "targets of another length",
           [](Graph& g) { (void)cross_entropy(g.input("l", {DType::F32, {2, 8}}), g.input("t", {DType::U32, {3}})); },
           "softmax_stats: targets is U32 [3], expected U32 [2]"},
          {"cross_entropy", "logits of one dimension",
           [](Graph& g) { (void)cross_entropy(g.input("l", {DType::F32, {8}}), g.input("t", {DType::U32, {1}})); },
           "softmax_stats: logits is F32 [8], expected F32 [B, V]"},
          {"cross_entropy", "statistics of other rows",
           [](Graph& g) {
             (void)cross_entropy_gradient(g.input("l", {DType::F32, {2, 8}}), g.input("s", {DType::F32, {3, 3}}),
                                          g.input("t", {DType::U32, {2}}));
           },
           "cross_entropy_gradient: stats is F32 [3, 3], expected F32 [2, 3]"},
          {"cross_entropy", "weights of other rows",
           [](Graph& g) {
             (void)cross_entropy_gradient(g.input("l", {DType::F32, {2, 8}}), g.input("s", {DType::F32, {2, 3}}),
                                          g.input("t", {DType::U32, {2}}), g.input("w", {DType::F32, {3}}));
           },
           "cross_entropy_gradient: weights is F32 [3], expected F32 [2]"},
          {"cross_entropy", "tile past the vocabulary",
           [](Graph& g) {
             (void)softmax_stats(g.input("l", {DType::F32, {2, 8}}), g.input("t", {DType::U32, {2}}), {96, 100});
           },
           "softmax_stats: the tile ends at token 104 of a vocabulary of 100"}};
}

}  // namespace rullama
