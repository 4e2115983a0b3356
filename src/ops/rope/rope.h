#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

struct RopeOptions {
  std::uint32_t rotated;     // r, elements of each head that turn: even, at most the head width
  float base;                // more than 1
  float position_scale = 1;  // positions are multiplied by it (linear context scaling: 1 / factor)
  bool inverse = false;      // turn back: the derivative, and the undoing, of the same turn
};

// Rotary positions, pairs (i, i + r/2) of each head: (a cos t - b sin t, a sin t + b cos t) with
// t = position * position_scale * base^(-2i/r) / factors[i]. Elements from r on stay as they are.
// x: F32 [T, H, D]; positions: U32 [T], any position below 2^17 is exact; factors: F32 [r/2] or an invalid Var (all 1).
// The angle is formed in f32, as the models' own code does: position 131,071 agrees with it within 1e-4.
// Source: Su et al. 2021, "RoFormer"; pairs of halves as in GPT-NeoX.
[[nodiscard]] Var rope(Var x, Var positions, Var factors, const RopeOptions& options);

// Positions in a plane: the first half of each head turns by pos_x, the second half by pos_y, each with pairs
// (i, i + D/4) and t = position * base^(-2i / (D/2)).
// x: F32 [N, H, D], D a multiple of 4; pos_x, pos_y: U32 [N]. inverse: turns back.
[[nodiscard]] Var rope_2d(Var x, Var pos_x, Var pos_y, float base, bool inverse = false);

}  // namespace rullama
