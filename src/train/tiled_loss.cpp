#include "train/tiled_loss.h"

#include <algorithm>

#include "ops/cross_entropy/cross_entropy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/matmul/matmul.h"

namespace rullama {

TiledLoss::TiledLoss(const LossInputs& in, std::uint64_t tile) : in_(in), vocab_(in.head.shape()[0]) {
  tile = std::max<std::uint64_t>(tile, 1);
  for (std::uint64_t row = 0; row < vocab_; row += tile) tiles_.push_back({row, std::min(row + tile, vocab_)});
  if (in_.a) z_ = matmul(in_.low, in_.a);
  for (const Tile& t : tiles_) {
    const Var logits = softcap(scores(t), in_.softcap);
    stats_ = softmax_stats(logits, in_.targets, {t.row0, vocab_}, stats_);
  }
  loss_ = cross_entropy_loss(stats_, in_.targets, vocab_);
}

Var TiledLoss::scores(const Tile& t) const {
  Var y = matmul(in_.hidden, in_.head, {.row0 = t.row0, .row1 = t.row1});
  return z_ ? matmul(z_, in_.b, {.scale = in_.scale, .plus = y, .row0 = t.row0, .row1 = t.row1}) : y;
}

TiledLoss::Gradient TiledLoss::gradient(const RowSink& d_b) const {
  Var d_hidden, d_z;
  for (const Tile& t : tiles_) {
    const Var raw = scores(t);
    Var d = cross_entropy_gradient(softcap(raw, in_.softcap), stats_, in_.targets, in_.weights, {t.row0, vocab_});
    if (in_.softcap > 0) d = softcap_backward(raw, in_.softcap, d);
    d_hidden = matmul_transposed(d, in_.head, {.plus = d_hidden, .row0 = t.row0, .row1 = t.row1});
    if (!z_) continue;
    d_z = matmul_transposed(d, in_.b, {.scale = in_.scale, .plus = d_z, .row0 = t.row0, .row1 = t.row1});
    d_b(t.row0, outer_sum(d, z_, {.scale = in_.scale}));
  }
  if (!z_) return {d_hidden, {}, {}};
  return {d_hidden, matmul_transposed(d_z, in_.a), outer_sum(d_z, in_.low)};
}

}  // namespace rullama
