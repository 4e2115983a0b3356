// Writes GGUF version 3: keys, tensor table, data.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"

namespace rullama {

namespace detail {
template <class T, class... Types>
concept one_of = (std::same_as<T, Types> || ...);
}  // namespace detail

template <class T>
concept GgufNumber = detail::one_of<T, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t,
                                    std::int32_t, std::uint64_t, std::int64_t, float, double, bool>;

template <GgufNumber T>
[[nodiscard]] constexpr GgufType gguf_type() {
  if constexpr (std::same_as<T, bool>) return GgufType::boolean;
  if constexpr (std::same_as<T, float>) return GgufType::f32;
  if constexpr (std::same_as<T, double>) return GgufType::f64;
  constexpr bool sign = T(-1) < T(0);
  switch (sizeof(T)) {
    case 1: return sign ? GgufType::i8 : GgufType::u8;
    case 2: return sign ? GgufType::i16 : GgufType::u16;
    case 4: return sign ? GgufType::i32 : GgufType::u32;
    default: return sign ? GgufType::i64 : GgufType::u64;
  }
}

class GgufWriter {
 public:
  // `alignment` of the tensors' data: a power of two from 8 to 65536.
  explicit GgufWriter(std::uint32_t alignment = 32);

  // --- metadata, in the order of the first call for a key; a later call replaces the value
  void set(std::string_view key, std::string_view text);
  template <GgufNumber T>
  void set(std::string_view key, T value) {
    put(key, gguf_type<T>(), std::as_bytes(std::span(&value, 1)));
  }
  template <GgufNumber T>
  void set_array(std::string_view key, std::span<const T> values) {
    put_array(key, gguf_type<T>(), values.size(), std::as_bytes(values));
  }
  void set_array(std::string_view key, std::span<const std::string_view> texts);
  void set(std::string_view key, const GgufValue& value);  // as another file has it
  void erase(std::string_view key);

  // --- tensors, in the order of the file
  // `dims` fastest first, 1 to 4. An error if the name occurs twice or a reader would refuse it.
  [[nodiscard]] Result<> add_tensor(std::string_view name, std::span<const std::uint64_t> dims,
                                    std::uint32_t ggml_type);

  // Calls `data` for each tensor in turn; it must write exactly the tensor's bytes.
  [[nodiscard]] Result<> write(ByteSink& sink, const TensorData& data) const;

 private:
  struct Entry {
    std::string key, value;  // the value with its type, as in the file
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> dims;
    std::uint32_t ggml_type;
    std::uint64_t bytes;
  };
  void put(std::string_view key, GgufType type, std::span<const std::byte> value);
  void put_array(std::string_view key, GgufType element, std::uint64_t count, std::span<const std::byte> values);
  void replace(std::string_view key, std::string value);
  [[nodiscard]] std::string header() const;

  std::uint32_t alignment_;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
};

}  // namespace rullama
