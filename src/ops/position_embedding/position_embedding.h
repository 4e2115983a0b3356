#pragma once

#include "ops/graph.h"

namespace rullama {

// Learnt positions in a plane, as of image patches: y[n] = h[n] + table[0, pos_x[n]] + table[1, pos_y[n]]; a position
// that is no row of the table adds nothing.
// h: F32 [N, D]; table: [2, P, D] of any type but U32; pos_x, pos_y: U32 [N]. Returns F32 [N, D].
// Derivative: for h; the table is frozen.
[[nodiscard]] Var add_position_embedding_2d(Var h, Var table, Var pos_x, Var pos_y);

}  // namespace rullama
