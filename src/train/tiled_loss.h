// Cross-entropy over a vocabulary whose logits are never stored whole: the head is applied tile by tile, once for the
// statistics and once more for the gradient (ops/cross_entropy/cross_entropy.h).
#pragma once

#include <cstdint>

#include "lora/adapter.h"

namespace rullama {

struct LossInputs {
  Var hidden;            // F32 [R, hidden], after the final norm
  Var head;              // [vocab, hidden] of any type
  float softcap = 0;     // of the logits; 0: none
  Var targets, weights;  // U32 [R], F32 [R]: what each row should predict (no token: nothing) and how much it counts
  // The head's adapter: y += scale B (A low), added before the softcap. Invalid: none.
  Var low = {};        // F32 [R, hidden]: `hidden`, or what dropout leaves of it
  Var a = {}, b = {};  // F32 [rank, hidden], [vocab, rank]
  float scale = 1;
};

class TiledLoss {
 public:
  // Tiles of at most `tile` tokens.
  TiledLoss(const LossInputs& in, std::uint64_t tile);

  // F32 [R], not weighted; 0 for rows without a target.
  [[nodiscard]] Var loss() const { return loss_; }
  [[nodiscard]] Var low() const { return in_.low; }

  // Of sum(weights * loss). `d_low` and `d_a` are invalid without an adapter; d_b goes tile by tile to `sink` as rows
  // [row0, row0 + n) of the gradient, F32 [n, rank].
  struct Gradient {
    Var hidden, low, a;
  };
  using RowSink = std::function<void(std::uint64_t row0, Var rows)>;
  [[nodiscard]] Gradient gradient(const RowSink& d_b) const;

 private:
  struct Tile {
    std::uint64_t row0, row1;
  };
  [[nodiscard]] Var scores(const Tile& tile) const;  // before the softcap

  LossInputs in_;
  std::vector<Tile> tiles_;
  std::uint64_t vocab_;
  Var z_, stats_, loss_;
};

}  // namespace rullama
