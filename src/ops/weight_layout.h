// How tensors lie in GPU memory.
//
// F32 and U32: as on the CPU. F16 and BF16: packed two to a word, a row of odd length padded to a whole word.
// Quantised types: each field of the format's block (DTypeInfo::fields), after DTypeInfo::regroup where a type has
// that, has a plane of its own, [blocks][field bytes], in the order of the fields, each plane starting at a multiple of
// 16 bytes. So blocks of 18, 34 or 210 bytes become aligned loads, and a kernel finds field f of block b at planes[f] +
// b * field words.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/tensor.h"

namespace rullama {

struct WeightLayout {
  std::array<std::uint32_t, 4> planes{};  // first word of each plane
  std::uint64_t row_words = 0;            // dense types: words of a row
  std::uint64_t bytes = 0;                // whole, a multiple of 16
};

// Layout of `rows` rows of `columns` elements.
[[nodiscard]] WeightLayout weight_layout(DType dtype, std::uint64_t rows, std::uint64_t columns);

// Most rows of `columns` that fit into `max_bytes` in one part; a multiple of `multiple` unless all rows fit.
[[nodiscard]] std::uint64_t rows_that_fit(DType dtype, std::uint64_t columns, std::uint64_t max_bytes,
                                          std::uint64_t multiple);

// A run of bytes for one place of the laid-out tensor.
struct LayoutPiece {
  std::uint64_t at = 0;  // bytes from the start of the part
  std::vector<std::byte> data;
};

// Lays out rows [row0, row0 + rows) of a part of `part_rows` rows, whose file bytes are `src`. Each piece is a multiple
// of 4 bytes if row0 and rows are even or the piece reaches the end of the part.
[[nodiscard]] std::vector<LayoutPiece> lay_out(DType dtype, std::uint64_t part_rows, std::uint64_t columns,
                                               std::uint64_t row0, std::uint64_t rows, std::span<const std::byte> src);

}  // namespace rullama
