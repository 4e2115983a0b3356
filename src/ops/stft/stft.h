// From the spectrum that a vocoder predicts to its waveform.
#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// The spectral head: magnitude = exp of the first half of the channels, phase = sin of the second.
// x: F32 [2 B, F]. Returns two F32 [B, F].
struct Spectrum {
  Var magnitude, phase;
};
[[nodiscard]] Spectrum spectral_split(Var x);

// The inverse short-time Fourier transform of real signals: B = n / 2 + 1 bins for each frame, periodic Hann window of
// n, frames `hop` apart, added up and divided by the sum of squared windows (unless that is below 1e-11), n / 2 cut off
// at both ends. The imaginary parts of the first and (n even) the last bin do not count. magnitude, phase: F32 [B, F],
// phase in radians. Returns F32 [(F - 1) hop + n - 2 (n / 2)], [0] for no frames.
[[nodiscard]] Var inverse_stft(Var magnitude, Var phase, std::uint32_t n, std::uint32_t hop);

}  // namespace rullama
