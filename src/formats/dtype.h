// Storage types of tensors: one table that says all there is to say about a weight format.
//
// A format is this row, one C++ decoder and encoder and one WGSL decoder, all in formats/dtype/<name>.{cpp,wgsl};
// every consumer (embedding row, products, their transposes, experts) is written over the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "rullama/result.h"

namespace rullama {

enum class DType : std::uint8_t { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, U32 };
inline constexpr std::size_t kDTypeCount = 12;

struct DTypeInfo {
  std::string_view name;         // as GGUF tools print it, "Q4_K"
  std::uint32_t ggml_id;         // number in GGUF files
  std::uint32_t block_elements;  // elements that share one block, along a row
  std::uint32_t block_bytes;
  bool quantised;
  // Fields of a block in file order, in bytes. On the GPU each field becomes a plane of its own (all blocks'
  // first fields, then all second ones, ...), so that every load is aligned; see ops/weight_layout.h.
  std::span<const std::uint16_t> fields;
  // Blocks for the GPU, where a thread takes 32 elements: the bits of each 32 lie together, in the order of Q5_1's.
  // Null where they do already.
  void (*regroup)(const std::byte* src, std::size_t blocks, std::byte* dst);
  // Decodes `blocks` consecutive blocks into blocks * block_elements floats. Exact: the f32 that ggml's decoder gives.
  void (*decode)(const std::byte* src, std::size_t blocks, float* dst);
  // Rounds to the format, with scales searched for the least error (dtype/search.h). What was decoded from F32, F16,
  // BF16, Q8_0, Q4_0, Q4_1, Q5_0 or Q5_1 is met again exactly, from K-quants nearly. Beyond a format's range values
  // become its largest. Null where there is no encoder.
  void (*encode)(const float* src, std::size_t blocks, std::byte* dst);
};

[[nodiscard]] const DTypeInfo& info(DType type);
[[nodiscard]] inline std::string_view name(DType type) { return info(type).name; }
[[nodiscard]] std::optional<DType> dtype_of_ggml(std::uint32_t ggml_id);
[[nodiscard]] std::optional<DType> dtype_of_name(std::string_view name);

// Bytes of a row of `elements`, which must be a multiple of the block.
[[nodiscard]] inline std::size_t row_bytes(DType type, std::size_t elements) {
  return elements / info(type).block_elements * info(type).block_bytes;
}

// Encodes whole blocks into row_bytes(type, values.size()) bytes; an error if a value is infinite or not a number.
[[nodiscard]] Result<> encode(DType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace rullama
