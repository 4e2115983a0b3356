#pragma once

#include "ops/graph.h"

namespace rullama {

// Rows [first, first + count) of x seen as [rows, n] (n its last dimension): F32 [count, n]. A copy.
// The derivative is zero elsewhere.
[[nodiscard]] Var rows(Var x, std::uint64_t first, std::uint64_t count);

// Columns [first, first + count) of x seen as [rows, n]: F32 [rows, count]. A copy.
[[nodiscard]] Var columns(Var x, std::uint64_t first, std::uint64_t count);

// The inverse: x [rows, count] in columns [first, first + count) of a matrix of `shape` that is zero elsewhere.
[[nodiscard]] Var spread_columns(Var x, const Shape& shape, std::uint64_t first);

}  // namespace rullama
