// A GGUF file's metadata and tensor table, read without trusting a byte of it.
//
// Versions 2 and 3, little-endian. A key, a count or a size that cannot be right gives an error that names it; nothing
// is allocated for a length before the file was seen to hold that many bytes. The header is copied into memory, so that
// a file that changes later cannot change what was checked.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/dtype.h"
#include "formats/file.h"

namespace rullama {

// Numbers as in the file.
enum class GgufType : std::uint8_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
[[nodiscard]] std::string_view name(GgufType type);
[[nodiscard]] std::size_t scalar_bytes(GgufType type);  // 0 for strings and arrays

struct GgufValue {
  GgufType type = GgufType::u8;     // for arrays GgufType::array
  GgufType element = GgufType::u8;  // of an array, else as `type`
  std::uint64_t count = 1;          // of an array
  std::span<const std::byte> data;  // as in the file; strings with their lengths
};

struct GgufTensor {
  std::string_view name;
  std::array<std::uint64_t, 4> dims{1, 1, 1, 1};  // in the file's order: fastest first
  std::uint32_t rank = 1;
  std::uint32_t ggml_type = 0;
  std::optional<DType> dtype;  // empty: a type that this engine cannot compute with
  std::uint64_t offset = 0;    // of the data in the file
  std::uint64_t bytes = 0;
  [[nodiscard]] std::string_view type_name() const;
};

// What files may hold; models have a few thousand tensors and half a million strings.
inline constexpr std::uint64_t kMaxGgufTensors = 1u << 17, kMaxGgufKeys = 1u << 16, kMaxGgufTensorName = 63;
inline constexpr std::uint64_t kMaxGgufHeader = 256u << 20;  // bytes
inline constexpr std::uint64_t kMaxGgufText = 16u << 20;     // bytes of one text; chat templates have a few thousand
inline constexpr std::uint64_t kMaxGgufEntries = 1u << 21;   // of an array of strings, or one for get_numbers

class Gguf {
 public:
  [[nodiscard]] static Result<Gguf> read(std::shared_ptr<const ByteSource> source);

  [[nodiscard]] const std::shared_ptr<const ByteSource>& source() const { return source_; }
  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::uint64_t alignment() const { return alignment_; }

  // --- metadata, in the file's order
  [[nodiscard]] std::span<const std::pair<std::string_view, GgufValue>> metadata() const { return metadata_; }
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  [[nodiscard]] bool is_array(std::string_view key) const;

  // Any integer type of the file that holds a value in range. Errors name the key and say what was found.
  [[nodiscard]] Result<std::uint64_t> get_u64(std::string_view key) const;
  [[nodiscard]] Result<float> get_f32(std::string_view key) const;
  [[nodiscard]] Result<bool> get_bool(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> get_string(std::string_view key) const;
  // `count` values from an array of integers or booleans of that length, or one scalar for all.
  [[nodiscard]] Result<std::vector<std::uint32_t>> per_layer_u32(std::string_view key, std::size_t count) const;
  // Arrays of numbers (booleans as 0 and 1) and of strings; at most kMaxGgufEntries.
  [[nodiscard]] Result<std::vector<double>> get_numbers(std::string_view key) const;
  [[nodiscard]] Result<std::vector<std::string_view>> get_strings(std::string_view key) const;

  // --- tensors, in the file's order
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  [[nodiscard]] const GgufTensor* tensor(std::string_view name) const;

 private:
  friend class GgufReader;
  Gguf() = default;
  std::shared_ptr<const ByteSource> source_;
  std::shared_ptr<const std::byte[]> header_;  // what all views point into
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> key_order_, tensor_order_;  // by name: a hash would let a file choose slow names
};

}  // namespace rullama
