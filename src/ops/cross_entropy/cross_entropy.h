// Cross-entropy of next-token predictions and its gradient, whole or in tiles of the vocabulary.
//
// A target that is no token (>= vocabulary, 0xFFFFFFFF by custom) masks its row: loss and gradient are exactly 0.
#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// loss[b] = log sum_j exp(logits[b, j]) - logits[b, targets[b]], without overflow.
// logits: F32 [B, V]; targets: U32 [B]. Returns F32 [B]. Derivative: for logits.
[[nodiscard]] Var cross_entropy(Var logits, Var targets);

// The same, and dlogits = softmax(logits) - onehot(targets), F32 [B, V].
struct CrossEntropy {
  Var loss, dlogits;
};
[[nodiscard]] CrossEntropy cross_entropy_with_gradient(Var logits, Var targets);

// --- tiles, for vocabularies whose logits are never stored whole. One pass over the tiles chains softmax_stats, each
// from the one before; then cross_entropy_loss; a second pass makes each tile's logits again and their gradient:
//
//   for each tile: stats = softmax_stats(matmul(x, w, tile), targets, tile, stats);
//   loss = cross_entropy_loss(stats, targets, vocabulary);
//   for each tile: d = cross_entropy_gradient(matmul(x, w, tile), stats, targets, weights, tile); dx +=
//   matmul_transposed(d, w, tile)

// Columns [start, start + v) of the logits, v the width of the tile given.
struct VocabularyTile {
  std::uint64_t start = 0;
  std::uint64_t vocabulary = 0;  // V; 0: the tile is the whole
};

// Per row [largest logit, sum of exp(logit - largest), logit of the target], over the tile and all in `before`.
// logits: F32 [B, v]; targets: U32 [B]; before: F32 [B, 3] or invalid (first tile). Returns F32 [B, 3].
[[nodiscard]] Var softmax_stats(Var logits, Var targets, VocabularyTile tile = {}, Var before = {});

// loss[b] from the statistics of all tiles. stats: F32 [B, 3]. Returns F32 [B].
[[nodiscard]] Var cross_entropy_loss(Var stats, Var targets, std::uint64_t vocabulary);

// weights[b] (softmax - onehot) of the tile's columns. weights: F32 [B] or invalid (then 1): the loss's own gradient,
// such as 1 / number of targets. Returns F32 like logits.
[[nodiscard]] Var cross_entropy_gradient(Var logits, Var stats, Var targets, Var weights = {},
                                         VocabularyTile tile = {});

}  // namespace rullama
