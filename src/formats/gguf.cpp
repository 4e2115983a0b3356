#include "formats/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "formats/ggml_types.h"

namespace rullama {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

struct Integer {
  bool negative = false;
  std::uint64_t bits = 0;  // two's complement
  [[nodiscard]] double as_double() const {
    return negative ? static_cast<double>(static_cast<std::int64_t>(bits)) : static_cast<double>(bits);
  }
};

Integer with_sign(std::int64_t value) { return {value < 0, static_cast<std::uint64_t>(value)}; }

// Empty for types that are no integers.
std::optional<Integer> integer_at(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::u8: return Integer{false, load<std::uint8_t>(p)};
    case GgufType::u16: return Integer{false, load<std::uint16_t>(p)};
    case GgufType::u32: return Integer{false, load<std::uint32_t>(p)};
    case GgufType::u64: return Integer{false, load<std::uint64_t>(p)};
    case GgufType::i8: return with_sign(load<std::int8_t>(p));
    case GgufType::i16: return with_sign(load<std::int16_t>(p));
    case GgufType::i32: return with_sign(load<std::int32_t>(p));
    case GgufType::i64: return with_sign(load<std::int64_t>(p));
    default: return {};
  }
}

// Empty for types that are no numbers.
std::optional<double> number_at(GgufType type, const std::byte* p) {
  if (type == GgufType::f32) return load<float>(p);
  if (type == GgufType::f64) return load<double>(p);
  if (const auto n = integer_at(type, p)) return n->as_double();
  return {};
}

std::unexpected<Error> missing(std::string_view key) {
  return fail(ErrorCode::not_found, cat("key ", quote(key), " is missing"));
}

std::unexpected<Error> wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) {
  const std::string found = value.type == GgufType::array
                                ? cat("an array of ", value.count, " values of type ", name(value.element))
                                : cat("of type ", name(value.type));
  return fail(cat("key ", quote(key), " is ", found, ", expected ", expected));
}

}  // namespace

std::string_view name(GgufType type) {
  static constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

std::size_t scalar_bytes(GgufType type) {
  static constexpr std::size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return sizes[static_cast<std::size_t>(type)];
}

std::string_view GgufTensor::type_name() const { return rullama::ggml_type(ggml_type).name; }

const GgufValue* Gguf::find(std::string_view key) const {
  const auto name_of = [this](std::uint32_t i) { return metadata_[i].first; };
  const auto it = std::ranges::lower_bound(key_order_, key, {}, name_of);
  return it != key_order_.end() && name_of(*it) == key ? &metadata_[*it].second : nullptr;
}

bool Gguf::is_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value && value->type == GgufType::array;
}

const GgufTensor* Gguf::tensor(std::string_view name) const {
  const auto name_of = [this](std::uint32_t i) { return tensors_[i].name; };
  const auto it = std::ranges::lower_bound(tensor_order_, name, {}, name_of);
  return it != tensor_order_.end() && name_of(*it) == name ? &tensors_[*it] : nullptr;
}

Result<std::uint64_t> Gguf::get_u64(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  const auto n = integer_at(value->type, value->data.data());
  if (!n) return wrong_type(key, *value, "an integer");
  if (n->negative)
    return fail(cat("key ", quote(key), " is ", static_cast<std::int64_t>(n->bits), ", expected 0 or more"));
  return n->bits;
}

Result<float> Gguf::get_f32(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  const auto n = number_at(value->type, value->data.data());
  if (!n) return wrong_type(key, *value, "a number");
  if (std::isfinite(*n) && std::fabs(*n) > std::numeric_limits<float>::max())
    return fail(cat("key ", quote(key), " is ", *n, ", beyond the range of a 32-bit float"));
  return static_cast<float>(*n);
}

Result<bool> Gguf::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  if (value->type != GgufType::boolean) return wrong_type(key, *value, "true or false");
  return load<std::uint8_t>(value->data.data()) != 0;
}

Result<std::string_view> Gguf::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  if (value->type != GgufType::string) return wrong_type(key, *value, "a string");
  return std::string_view(reinterpret_cast<const char*>(value->data.data()) + 8, value->data.size() - 8);
}

Result<std::vector<std::uint32_t>> Gguf::per_layer_u32(std::string_view key, std::size_t count) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  const bool array = value->type == GgufType::array;
  const GgufType type = value->element == GgufType::boolean ? GgufType::u8 : value->element;
  const std::size_t each = scalar_bytes(type);
  if (each == 0 || type == GgufType::f32 || type == GgufType::f64) return wrong_type(key, *value, "integers");
  if (array && value->count != count)
    return fail(
        cat("key ", quote(key), " has ", value->count, " entries, expected one for each of ", count, " layers"));
  std::vector<std::uint32_t> out(count);
  for (std::size_t i = 0; i < count; i++) {
    const auto n = integer_at(type, value->data.data() + (array ? i * each : 0));
    if (n->negative || n->bits > std::numeric_limits<std::uint32_t>::max())
      return fail(cat("key ", quote(key), " has the value ", n->as_double(), ", expected 0 to 4294967295"));
    out[i] = static_cast<std::uint32_t>(n->bits);
  }
  return out;
}

Result<std::vector<double>> Gguf::get_numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  const GgufType type = value->element == GgufType::boolean ? GgufType::u8 : value->element;
  const std::size_t each = scalar_bytes(type);
  if (value->type != GgufType::array || each == 0) return wrong_type(key, *value, "an array of numbers");
  if (value->count > kMaxGgufEntries)
    return fail(cat("key ", quote(key), " has ", value->count, " entries, above the limit of ", kMaxGgufEntries));
  std::vector<double> out(value->count);
  for (std::size_t i = 0; i < out.size(); i++) out[i] = *number_at(type, value->data.data() + i * each);
  return out;
}

Result<std::vector<std::string_view>> Gguf::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  if (value->type != GgufType::array || value->element != GgufType::string)
    return wrong_type(key, *value, "an array of strings");
  std::vector<std::string_view> out;
  out.reserve(value->count);
  const std::byte* p = value->data.data();
  for (std::uint64_t i = 0; i < value->count; i++) {
    const auto length = load<std::uint64_t>(p);
    out.emplace_back(reinterpret_cast<const char*>(p) + 8, length);
    p += 8 + length;
  }
  return out;
}

}  // namespace rullama
