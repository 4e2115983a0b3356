#include "ops/draw/draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"
#include "ops/top_k/top_k.h"

namespace rullama {
namespace {

struct Place {
  double logit;
  std::size_t at;  // in the row
};

// `places` are the candidates, best first, at least one.
std::size_t drawn(std::span<const Place> places, const DrawRule& rule) {
  if (rule.temperature <= 0) return places[0].at;
  const auto weight = [&](const Place& p, double temperature) {
    return std::exp((p.logit - places[0].logit) / temperature);
  };
  double total = 0, sum = 0;
  for (const Place& p : places) total += weight(p, rule.truncation_temperature);
  std::size_t kept = 0;
  for (; kept < places.size(); kept++) {
    const double w = weight(places[kept], rule.truncation_temperature);
    if (kept > 0 && (w < rule.min_p || (rule.top_p < 1 && sum >= rule.top_p * total))) break;
    sum += w;
  }
  places = places.first(kept);
  total = 0;
  for (const Place& p : places) total += weight(p, rule.temperature);
  double rest = rule.uniform * total;
  for (const Place& p : places) {
    rest -= weight(p, rule.temperature);
    if (rest < 0) return p.at;
  }
  return places.back().at;
}

// inputs: best, barred, rules, and token where it is wanted
class DrawOp final : public Op {
 public:
  explicit DrawOp(bool token) : token_(token) {}
  std::string_view name() const override { return "draw"; }
  std::uint32_t writes() const override { return token_ ? 1u << kToken : 0; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &best = in[0], &barred = in[1], &rules = in[2];
    if (best.dtype != DType::U32 || best.shape.rank() != 3 || best.shape[1] < 1 || best.shape[1] > kMostBest ||
        best.shape[2] != 2)
      return bad_argument(name(), "best", best, cat("U32 [rows, 1 to ", kMostBest, ", 2]"));
    if (barred.dtype != DType::U32 || barred.shape.rank() != 1)
      return bad_argument(name(), "barred", barred, "U32 [b]");
    const TensorDesc expected{DType::F32, {best.shape[0], kDrawRuleNumbers}};
    if (rules != expected) return bad_argument(name(), "rules", rules, expected.str());
    const TensorDesc token{DType::U32, {best.shape[0]}};
    if (token_ && in[kToken] != token) return bad_argument(name(), "token", in[kToken], token.str());
    return std::vector{TensorDesc{DType::U32, {best.shape[0], best.shape[1] + 1, 2}}};
  }

  void eval(const CpuCall& call) const override {
    const std::uint64_t k = call.in[0].shape()[1];
    const auto barred = call.in[1].u32();
    for (std::size_t r = 0; r < call.in[0].shape()[0]; r++) {
      const auto best = call.in[0].u32().subspan(r * k * 2, k * 2);
      const auto out = call.out[0].u32().subspan(r * (k + 1) * 2, (k + 1) * 2);
      const auto numbers = call.in[2].f32().subspan(r * kDrawRuleNumbers, kDrawRuleNumbers);
      const DrawRule rule{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
      std::vector<Place> places;
      for (std::size_t i = 0; i < k && static_cast<float>(places.size()) < rule.count; i++)
        if (std::ranges::count(barred, best[2 * i + 1]) == 0)
          places.push_back({static_cast<double>(std::bit_cast<float>(best[2 * i])), i});
      const std::size_t at = places.empty() ? 0 : drawn(places, rule);
      std::ranges::copy(best, out.begin());
      std::ranges::copy(best.subspan(2 * at, 2), out.end() - 2);
      if (token_) call.in[kToken].u32()[r] = best[2 * at + 1];
    }
  }

  Result<> record(GpuCall& call) const override {
    const Shape& shape = call.in[0].shape();
    if (shape[0] == 0) return {};
    const struct {
      std::uint32_t rows, k, barred, pad = 0;
    } params{static_cast<std::uint32_t>(shape[0]), static_cast<std::uint32_t>(shape[1]),
             static_cast<std::uint32_t>(call.in[1].shape()[0])};
    const auto source = [&] {
      return gpu::Wgsl("ops/draw/draw.wgsl")
          .constant("MOST", kMostBest)
          .text(cat("@group(0) @binding(4) var<storage, ", token_ ? "read_write" : "read", "> token: array<u32>;"))
          .text(token_ ? "fn keep(row: u32, place: u32) { token[row] = place; }"
                       : "fn keep(row: u32, place: u32) { _ = &token; }");
    };
    return call.dispatch(token_ ? "draw_token" : "draw", source,
                         {read(call.in[0]), read(call.in[1]), read(call.in[2]), write(call.out[0]),
                          token_ ? write(call.in[kToken]) : read(call.in[1])},
                         params, gpu::Grid::wrap(shape[0]));
  }

 private:
  static constexpr std::size_t kToken = 3;
  bool token_;
};

}  // namespace

Var draw(Var best, Var barred, Var rules, Var token) {
  if (!best) return {};
  std::vector<Var> in{best, barred, rules};
  if (token) in.push_back(token);
  return best.graph()->add(std::make_unique<DrawOp>(bool(token)), in)[0];
}

}  // namespace rullama
