#pragma once

#include <cstdint>

#include "ops/graph.h"

namespace rullama {

// Row look-up: y[t] = scale * table[ids[t]], zeros where ids[t] is not a row.
// table: [V, d] of any type but U32; ids: U32 [T]. Returns F32 [T, d].
[[nodiscard]] Var embedding(Var table, Var ids, float scale = 1);

// Column look-up: z[t, r] = a[r, ids[t]], zeros where ids[t] is not a column: the low-rank adapter of an embedding.
// a: F32 [R, V]; ids: U32 [T]. Returns F32 [T, R]. Derivative: scatter_add_columns.
[[nodiscard]] Var embedding_columns(Var a, Var ids);

// o[r, c] = sum of u[t, r] over all t with ids[t] == c; a column that is named twice gets both.
// u: F32 [T, R]; ids: U32 [T]. Returns F32 [R, V].
[[nodiscard]] Var scatter_add_columns(Var u, Var ids, std::uint64_t columns);

}  // namespace rullama
