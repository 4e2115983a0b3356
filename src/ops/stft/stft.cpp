#include "ops/stft/stft.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

constexpr double kTwoPi = 6.283185307179586;

std::uint32_t u32(std::uint64_t v) { return static_cast<std::uint32_t>(v); }

class SpectralSplit final : public Op {
 public:
  std::string_view name() const override { return "spectral_split"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& x = in[0];
    if (x.dtype != DType::F32 || x.shape.rank() != 2 || x.shape[0] % 2)
      return bad_argument(name(), "x", x, "F32 [2 B, F]");
    return std::vector(2, TensorDesc{DType::F32, {x.shape[0] / 2, x.shape[1]}});
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), magnitude = call.out[0].f32(), phase = call.out[1].f32();
    call.crew.run(magnitude.size(), 2048, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) {
        magnitude[i] = static_cast<float>(std::exp(static_cast<double>(x[i])));
        phase[i] = static_cast<float>(std::sin(static_cast<double>(x[magnitude.size() + i])));
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t half = call.out[0].shape().elements();
    if (half == 0) return {};
    const struct {
      std::uint32_t half, pad[3] = {};
    } params{u32(half)};
    const auto source = [] { return gpu::Wgsl("ops/stft/split.wgsl").file("ops/elementwise/functions.wgsl"); };
    return call.dispatch("spectral_split", source, {read(call.in[0]), write(call.out[0]), write(call.out[1])}, params,
                         gpu::Grid::wrap((half + 63) / 64));
  }
};

class InverseStft final : public Op {
 public:
  InverseStft(std::uint32_t n, std::uint32_t hop) : n_(n), hop_(hop) {}
  std::string_view name() const override { return "inverse_stft"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc& magnitude = in[0];
    if (n_ == 0 || hop_ == 0 || hop_ > n_)
      return fail(cat(name(), ": windows of ", n_, " every ", hop_, ", expected at least 1 and no gaps"));
    const std::uint64_t bins = n_ / 2 + 1;
    if (magnitude.dtype != DType::F32 || magnitude.shape.rank() != 2 || magnitude.shape[0] != bins)
      return bad_argument(name(), "magnitude", magnitude, cat("F32 [", bins, ", frames]"));
    if (in[1] != magnitude) return bad_argument(name(), "phase", in[1], magnitude.str());
    const std::uint64_t frames = magnitude.shape[1];
    return std::vector{TensorDesc{DType::F32, {frames ? (frames - 1) * hop_ + n_ - n_ / 2 * 2 : 0}}};
  }

  void eval(const CpuCall& call) const override {
    const auto magnitude = call.in[0].f32(), phase = call.in[1].f32(), y = call.out[0].f32();
    const std::size_t bins = n_ / 2 + 1, frames = call.in[0].shape()[1];
    struct Complex {
      double re, im;
    };
    std::vector<Complex> turns(n_), spectrum(frames * bins);
    for (std::size_t j = 0; j < n_; j++) {
      const double angle = kTwoPi * static_cast<double>(j) / n_;
      turns[j] = {std::cos(angle), std::sin(angle)};
    }
    call.crew.run(frames, 64, [&](std::size_t begin, std::size_t end) {
      for (std::size_t f = begin; f < end; f++)
        for (std::size_t k = 0; k < bins; k++) {
          const bool alone = k == 0 || 2 * k == n_;  // the others stand for two bins of the full transform
          const double m = magnitude[k * frames + f] * (alone ? 1.0 : 2.0) / n_, angle = phase[k * frames + f];
          spectrum[f * bins + k] = {m * std::cos(angle), m * std::sin(angle)};
        }
    });
    call.crew.run(y.size(), 256, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; i++) {
        const std::size_t at = i + n_ / 2, last = std::min(frames - 1, at / hop_);
        double sum = 0, weights = 0;
        for (std::size_t f = at < n_ ? 0 : (at - n_) / hop_ + 1; f <= last; f++) {
          const std::size_t t = at - f * hop_;
          double value = 0;
          for (std::size_t k = 0, j = 0; k < bins; k++, j = (j + t) % n_) {
            const Complex c = spectrum[f * bins + k];
            value += c.re * turns[j].re - c.im * turns[j].im;
          }
          const double window = 0.5 - 0.5 * turns[t].re;
          sum += value * window;
          weights += window * window;
        }
        y[i] = static_cast<float>(weights > 1e-11 ? sum / weights : sum);
      }
    });
  }

  // First the spectrum as complex numbers and a table of turns, then each sample from the frames that reach it.
  Result<> record(GpuCall& call) const override {
    const std::uint64_t samples = call.out[0].shape().elements();
    if (samples == 0) return {};
    const std::uint64_t bins = n_ / 2 + 1, frames = call.in[0].shape()[1], numbers = frames * bins + n_;
    auto scratch = call.scratch(0, numbers * 8);
    if (!scratch) return failed(scratch);
    const struct {
      std::uint32_t n, hop, bins, frames, samples, pad[3] = {};
    } params{n_, hop_, u32(bins), u32(frames), u32(samples)};
    const auto spectrum = [] { return gpu::Wgsl("ops/stft/spectrum.wgsl").file("ops/elementwise/functions.wgsl"); };
    if (auto ok = call.dispatch("stft_spectrum", spectrum, {read(call.in[0]), read(call.in[1]), gpu::write(**scratch)},
                                params, gpu::Grid::wrap((numbers + 63) / 64));
        !ok)
      return ok;
    const auto sum = [] { return gpu::Wgsl("ops/stft/samples.wgsl"); };
    return call.dispatch("stft_samples", sum, {gpu::read(**scratch), write(call.out[0])}, params,
                         gpu::Grid::wrap((samples + 63) / 64));
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    Cost cost = Op::cost(in, out);
    cost.flops = 4.0 * static_cast<double>(out[0].shape.elements()) * (n_ / 2 + 1) * n_ / hop_;
    return cost;
  }

 private:
  std::uint32_t n_, hop_;
};

}  // namespace

Spectrum spectral_split(Var x) {
  if (!x) return {};
  const auto out = x.graph()->add(std::make_unique<SpectralSplit>(), std::span(&x, 1));
  return {out[0], out[1]};
}

Var inverse_stft(Var magnitude, Var phase, std::uint32_t n, std::uint32_t hop) {
  return magnitude ? magnitude.graph()->add1(std::make_unique<InverseStft>(n, hop), {magnitude, phase}) : Var{};
}

}  // namespace rullama
