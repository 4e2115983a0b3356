#include "base/text.h"
#include "ops/op_cases.h"
#include "ops/stft/stft.h"

namespace rullama {

std::vector<OpCase> stft_cases() {
  std::vector<OpCase> cases;
  const auto split = [&](std::uint64_t bins, std::uint64_t frames, double range, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "spectral_split";
    c.format = "F32";
    c.shape = cat("bins=", bins, " frames=", frames, " range=", range);
    c.inputs = {{"x", {DType::F32, {2 * bins, frames}}, Fill::uniform(-range, range)}};
    c.build = [](Graph&, std::span<const Var> in) {
      const auto [magnitude, phase] = spectral_split(in[0]);
      return std::vector{magnitude, phase};
    };
    c.absolute = 1e-6;
    c.relative = 2e-6;
    c.use = use;
    cases.push_back(std::move(c));
  };
  split(11, 30, 3), split(1, 1, 3), split(3, 65, 10), split(4, 0, 1), split(11, 24000, 3, CaseUse::bench);

  const auto inverse = [&](std::uint32_t n, std::uint32_t hop, std::uint64_t frames, CaseUse use = CaseUse::test) {
    OpCase c;
    c.op = "inverse_stft";
    c.format = "F32";
    c.shape = cat("n=", n, " hop=", hop, " frames=", frames);
    const TensorDesc bins{DType::F32, {n / 2 + 1, frames}};
    c.inputs = {{"magnitude", bins, Fill::uniform(0, 2)}, {"phase", bins, Fill::uniform(-9, 9)}};
    c.build = [=](Graph&, std::span<const Var> in) { return std::vector{inverse_stft(in[0], in[1], n, hop)}; };
    c.absolute = 1e-5;
    // at the ends of a hop of n the windows nearly vanish, and what is divided by them keeps few digits
    c.relative = 1e-4;
    c.use = use;
    cases.push_back(std::move(c));
  };
  inverse(20, 5, 30), inverse(20, 5, 1), inverse(20, 5, 2), inverse(15, 4, 9), inverse(1, 1, 3), inverse(2, 1, 7);
  inverse(512, 128, 6), inverse(8, 8, 5), inverse(20, 5, 0);
  inverse(20, 5, 24000, CaseUse::bench), inverse(1024, 256, 400, CaseUse::bench);
  return cases;
}

std::vector<OpRefusal> stft_refusals() {
  const auto refusal = [](std::string what, Shape magnitude, Shape phase, std::uint32_t hop, std::string message) {
    return OpRefusal{"inverse_stft", std::move(what),
                     [=](Graph& g) {
                       (void)inverse_stft(g.input("m", {DType::F32, magnitude}), g.input("p", {DType::F32, phase}), 20,
                                          hop);
                     },
                     std::move(message)};
  };
  return {
      {"spectral_split", "an odd number of channels",
       [](Graph& g) { (void)spectral_split(g.input("x", {DType::F32, {5, 8}})); },
       "spectral_split: x is F32 [5, 8], expected F32 [2 B, F]"},
      refusal("too few bins", {10, 8}, {10, 8}, 5, "inverse_stft: magnitude is F32 [10, 8], expected F32 [11, frames]"),
      refusal("other frames of phase", {11, 8}, {11, 9}, 5, "inverse_stft: phase is F32 [11, 9], expected F32 [11, 8]"),
      refusal("gaps between windows", {11, 8}, {11, 8}, 21, "inverse_stft: windows of 20 every 21")};
}

}  // namespace rullama
