#include "ops/weight_layout.h"

#include <algorithm>
#include <cstring>

namespace rullama {
namespace {

std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }

bool is_half(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

}  // namespace

WeightLayout weight_layout(DType dtype, std::uint64_t rows, std::uint64_t columns) {
  WeightLayout layout;
  const DTypeInfo& type = info(dtype);
  if (!type.quantised) {
    layout.row_words = is_half(dtype) ? (columns + 1) / 2 : columns;
    layout.bytes = round_up(rows * layout.row_words * 4, 16);
    return layout;
  }
  const std::uint64_t blocks = rows * (columns / type.block_elements);
  for (std::size_t f = 0; f < type.fields.size(); f++) {
    layout.planes[f] = static_cast<std::uint32_t>(layout.bytes / 4);
    layout.bytes += round_up(blocks * type.fields[f], 16);
  }
  return layout;
}

std::uint64_t rows_that_fit(DType dtype, std::uint64_t columns, std::uint64_t max_bytes, std::uint64_t multiple) {
  const std::uint64_t per_row = std::max<std::uint64_t>(weight_layout(dtype, 1024, columns).bytes / 1024, 1) + 1;
  const std::uint64_t rows = max_bytes / per_row;
  return std::max(rows / multiple * multiple, multiple);
}

std::vector<LayoutPiece> lay_out(DType dtype, std::uint64_t part_rows, std::uint64_t columns, std::uint64_t row0,
                                 std::uint64_t rows, std::span<const std::byte> src) {
  const WeightLayout layout = weight_layout(dtype, part_rows, columns);
  const DTypeInfo& type = info(dtype);
  std::vector<LayoutPiece> pieces;
  if (!type.quantised) {
    const std::size_t from = row_bytes(dtype, columns), to = layout.row_words * 4;
    LayoutPiece piece{row0 * to, std::vector<std::byte>(rows * to)};
    if (from == to) {
      std::memcpy(piece.data.data(), src.data(), rows * from);
    } else {
      for (std::uint64_t r = 0; r < rows; r++) std::memcpy(piece.data.data() + r * to, src.data() + r * from, from);
    }
    pieces.push_back(std::move(piece));
    return pieces;
  }
  const std::uint64_t per_row = columns / type.block_elements, blocks = rows * per_row;
  std::vector<std::byte> regrouped(type.regroup ? blocks * type.block_bytes : 0);
  if (type.regroup) {
    type.regroup(src.data(), blocks, regrouped.data());
    src = regrouped;
  }
  std::size_t field_at = 0;
  for (std::size_t f = 0; f < type.fields.size(); f++) {
    const std::size_t width = type.fields[f];
    LayoutPiece piece{layout.planes[f] * 4ull + row0 * per_row * width,
                      std::vector<std::byte>(round_up(blocks * width, 4))};
    const std::byte* from = src.data() + field_at;
    std::byte* to = piece.data.data();
    for (std::uint64_t b = 0; b < blocks; b++, from += type.block_bytes, to += width) std::memcpy(to, from, width);
    pieces.push_back(std::move(piece));
    field_at += width;
  }
  return pieces;
}

}  // namespace rullama
