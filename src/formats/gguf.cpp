#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "base/utf8.h"
#include "formats/ggml_types.h"

namespace rullama {
namespace {

constexpr std::uint64_t kMaxKeyBytes = 65535, kMaxTensorName = 63, kMaxAlignment = 65536;
constexpr std::size_t kFirstRead = 1u << 20;

// Bytes of a scalar; 0 for strings and arrays.
std::size_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8: case GgufType::i8: case GgufType::boolean: return 1;
    case GgufType::u16: case GgufType::i16: return 2;
    case GgufType::u32: case GgufType::i32: case GgufType::f32: return 4;
    case GgufType::u64: case GgufType::i64: case GgufType::f64: return 8;
    case GgufType::string: case GgufType::array: return 0;
  }
  return 0;
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

struct Integer {
  bool ok = false, negative = false;
  std::uint64_t value = 0;  // as unsigned; the magnitude's complement if negative
};

Integer integer_at(GgufType type, const std::byte* p) {
  const auto from_signed = [](std::int64_t v) { return Integer{true, v < 0, static_cast<std::uint64_t>(v)}; };
  switch (type) {
    case GgufType::u8: case GgufType::boolean: return {true, false, load<std::uint8_t>(p)};
    case GgufType::u16: return {true, false, load<std::uint16_t>(p)};
    case GgufType::u32: return {true, false, load<std::uint32_t>(p)};
    case GgufType::u64: return {true, false, load<std::uint64_t>(p)};
    case GgufType::i8: return from_signed(load<std::int8_t>(p));
    case GgufType::i16: return from_signed(load<std::int16_t>(p));
    case GgufType::i32: return from_signed(load<std::int32_t>(p));
    case GgufType::i64: return from_signed(load<std::int64_t>(p));
    default: return {};
  }
}

}  // namespace

std::string_view name(GgufType type) {
  static constexpr std::string_view names[] = {"u8",     "i8",    "u16", "i16", "u32", "i32", "f32",
                                               "bool", "string", "array", "u64", "i64", "f64"};
  return names[static_cast<std::size_t>(type)];
}

std::string_view GgufTensor::type_name() const { return rullama::ggml_type(ggml_type).name; }

// Reads the header from the first bytes of a file. If they end too early and the file goes on, `more` is set.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> head, std::uint64_t file_size, const std::string& file_name, Gguf& out)
      : head_(head), size_(file_size), file_name_(file_name), out_(out) {}

  [[nodiscard]] bool more() const { return more_; }

  Result<> read() {
    std::uint64_t tensors = 0, pairs = 0;
    if (auto ok = read_start(tensors, pairs); !ok) return ok;
    if (auto ok = read_metadata(pairs); !ok) return ok;
    if (auto ok = read_alignment(); !ok) return ok;
    if (auto ok = read_tensors(tensors); !ok) return ok;
    return place_tensors();
  }

 private:
  // The next `n` bytes, or an error that says what is missing.
  Result<std::span<const std::byte>> take(std::uint64_t n, std::string_view what) {
    if (n > size_ - at_) return fail(cat(quoted(file_name_), " ends within ", what, "; the file is cut short or damaged"));
    if (n > head_.size() - at_) {
      more_ = true;
      return fail("more of the file is needed");
    }
    const auto piece = head_.subspan(at_, n);
    at_ += n;
    return piece;
  }
  template <class T>
  Result<T> number(std::string_view what) {
    auto piece = take(sizeof(T), what);
    if (!piece) return failed(piece);
    return load<T>(piece->data());
  }
  Result<std::string_view> string(std::string_view what, std::uint64_t longest) {
    auto length = number<std::uint64_t>(what);
    if (!length) return failed(length);
    if (*length > longest) return fail(cat(quoted(file_name_), ": ", what, " has a length of ", *length, " bytes, more than the possible ", longest));
    auto piece = take(*length, what);
    if (!piece) return failed(piece);
    return std::string_view(reinterpret_cast<const char*>(piece->data()), piece->size());
  }

  Result<> read_start(std::uint64_t& tensors, std::uint64_t& pairs) {
    if (size_ == 0) return fail(cat(quoted(file_name_), " is empty"));
    auto magic = take(4, "its first bytes");
    if (!magic) return failed(magic);
    if (std::memcmp(magic->data(), "GGUF", 4) != 0) return fail(cat(quoted(file_name_), " is not a GGUF file: it does not begin with 'GGUF'"));
    auto version = number<std::uint32_t>("the version");
    if (!version) return failed(version);
    if (*version == 0x02000000 || *version == 0x03000000)
      return fail(ErrorCode::unsupported, cat(quoted(file_name_), " is a big-endian GGUF file; convert it to little-endian"));
    if (*version != 2 && *version != 3)
      return fail(ErrorCode::unsupported, cat(quoted(file_name_), " has GGUF version ", *version, "; versions 2 and 3 can be read"));
    out_.version_ = *version;
    auto t = number<std::uint64_t>("the tensor count");
    if (!t) return failed(t);
    auto p = number<std::uint64_t>("the metadata count");
    if (!p) return failed(p);
    // the smallest possible entries: a tensor takes 33 bytes, a pair 14
    if (*t > (size_ - at_) / 33) return fail(cat(quoted(file_name_), ": tensor count ", *t, " is more than the file can hold"));
    if (*p > (size_ - at_) / 14) return fail(cat(quoted(file_name_), ": metadata count ", *p, " is more than the file can hold"));
    tensors = *t;
    pairs = *p;
    return {};
  }

  Result<> read_metadata(std::uint64_t pairs) {
    for (std::uint64_t i = 0; i < pairs; i++) {
      auto key = string(cat("metadata key ", i), kMaxKeyBytes);
      if (!key) return failed(key);
      if (key->empty() || key->find('\0') != std::string_view::npos || !utf8::valid(*key))
        return fail(cat(quoted(file_name_), ": metadata key ", i, " ", quoted(*key), " is not a text"));
      auto type = number<std::uint32_t>(cat("key ", quoted(*key)));
      if (!type) return failed(type);
      auto value = read_value(*key, *type);
      if (!value) return failed(value);
      if (!out_.keys_.emplace(*key, out_.metadata_.size()).second) return fail(cat(quoted(file_name_), ": key ", quoted(*key), " occurs twice"));
      out_.metadata_.emplace_back(*key, *value);
    }
    return {};
  }

  Result<GgufValue> read_value(std::string_view key, std::uint32_t type_number) {
    const auto bad_type = [&](std::uint32_t n, std::string_view what) {
      return fail(cat(quoted(file_name_), ": key ", quoted(key), " has ", what, " ", n, ", which does not exist"));
    };
    if (type_number > static_cast<std::uint32_t>(GgufType::f64)) return bad_type(type_number, "value type");
    GgufValue value;
    value.type = value.element = static_cast<GgufType>(type_number);
    const std::string what = cat("the value of key ", quoted(key));
    if (value.type == GgufType::array) {
      auto element = number<std::uint32_t>(what);
      if (!element) return failed(element);
      if (*element > static_cast<std::uint32_t>(GgufType::f64)) return bad_type(*element, "array element type");
      value.element = static_cast<GgufType>(*element);
      if (value.element == GgufType::array)
        return fail(ErrorCode::unsupported, cat(quoted(file_name_), ": key ", quoted(key), " is an array of arrays, which this reader refuses"));
      auto count = number<std::uint64_t>(what);
      if (!count) return failed(count);
      value.count = *count;
    }
    const std::size_t start = at_;
    if (value.element == GgufType::string) {
      if (value.count > (size_ - at_) / 8) return fail(cat(quoted(file_name_), ": key ", quoted(key), " claims ", value.count, " strings, more than the file can hold"));
      for (std::uint64_t i = 0; i < value.count; i++)
        if (auto s = string(what, std::numeric_limits<std::uint64_t>::max()); !s) return failed(s);
    } else {
      const std::size_t each = scalar_bytes(value.element);
      if (value.count > (size_ - at_) / each)
        return fail(cat(quoted(file_name_), ": key ", quoted(key), " claims ", value.count, " values, more than the file can hold"));
      if (auto piece = take(value.count * each, what); !piece) return failed(piece);
    }
    value.data = head_.subspan(start, at_ - start);
    return value;
  }

  Result<> read_alignment() {
    const GgufValue* value = out_.find("general.alignment");
    if (!value) return {};
    if (value->type != GgufType::u32) return fail(cat("key 'general.alignment' has type ", name(value->type), ", expected u32"));
    const auto alignment = load<std::uint32_t>(value->data.data());
    if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kMaxAlignment)
      return fail(cat("key 'general.alignment' is ", alignment, ", expected a power of two from 8 to ", kMaxAlignment));
    out_.alignment_ = alignment;
    return {};
  }

  Result<> read_tensors(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; i++) {
      auto name = string(cat("the name of tensor ", i), kMaxTensorName);
      if (!name) return failed(name);
      GgufTensor tensor;
      tensor.name = *name;
      if (name->empty()) return fail(cat(quoted(file_name_), ": tensor ", i, " has no name"));
      if (auto ok = read_tensor(tensor); !ok) return ok;
      if (!out_.names_.emplace(*name, out_.tensors_.size()).second) return fail(cat("tensor ", quoted(*name), " occurs twice"));
      out_.tensors_.push_back(tensor);
    }
    return {};
  }

  Result<> read_tensor(GgufTensor& t) {
    const std::string what = cat("the entry of tensor ", quoted(t.name));
    auto rank = number<std::uint32_t>(what);
    if (!rank) return failed(rank);
    if (*rank < 1 || *rank > 4) return fail(cat("tensor ", quoted(t.name), " has ", *rank, " dimensions, expected 1 to 4"));
    t.rank = *rank;
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < *rank; d++) {
      auto dim = number<std::uint64_t>(what);
      if (!dim) return failed(dim);
      t.dims[d] = *dim;
      if (*dim == 0) return fail(cat("tensor ", quoted(t.name), " has a dimension of 0"));
      if (*dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / elements)
        return fail(cat("tensor ", quoted(t.name), " has dimensions whose product is too large"));
      elements *= *dim;
    }
    auto type = number<std::uint32_t>(what);
    if (!type) return failed(type);
    const GgmlType known = ggml_type(*type);
    if (known.name.empty())
      return fail(ErrorCode::unsupported, cat("tensor ", quoted(t.name), " has type number ", *type, ", which GGUF does not have (any more)"));
    t.ggml_type = *type;
    t.dtype = dtype_of_ggml(*type);
    if (t.dims[0] % known.block_elements != 0)
      return fail(cat("tensor ", quoted(t.name), " has rows of ", t.dims[0], " elements, not a multiple of the ", known.block_elements, " of a ", known.name, " block"));
    const std::uint64_t blocks = elements / known.block_elements;
    if (blocks > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / known.block_bytes)
      return fail(cat("tensor ", quoted(t.name), " has more bytes than any file"));
    t.bytes = blocks * known.block_bytes;
    auto offset = number<std::uint64_t>(what);
    if (!offset) return failed(offset);
    if (*offset % out_.alignment_ != 0)
      return fail(cat("tensor ", quoted(t.name), " lies at offset ", *offset, ", not a multiple of the alignment ", out_.alignment_));
    t.offset = *offset;
    return {};
  }

  // Offsets count from the end of the header, rounded up to the alignment.
  Result<> place_tensors() {
    const std::uint64_t base = (at_ + out_.alignment_ - 1) / out_.alignment_ * out_.alignment_;
    std::vector<const GgufTensor*> order;
    for (GgufTensor& t : out_.tensors_) {
      if (base > size_ || t.offset > size_ - base || t.bytes > size_ - base - t.offset)
        return fail(cat("tensor ", quoted(t.name), " needs ", t.bytes, " bytes at offset ", t.offset, ", past the end of ", quoted(file_name_), "; the file is cut short or damaged"));
      t.offset += base;
      order.push_back(&t);
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
    for (std::size_t i = 1; i < order.size(); i++)
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
        return fail(cat("tensors ", quoted(order[i - 1]->name), " and ", quoted(order[i]->name), " overlap in the file"));
    return {};
  }

  std::span<const std::byte> head_;
  std::uint64_t size_;
  const std::string& file_name_;
  Gguf& out_;
  std::size_t at_ = 0;
  bool more_ = false;
};

Result<Gguf> Gguf::read(std::shared_ptr<const ByteSource> source) {
  const std::uint64_t size = source->size();
  if (const auto mapped = source->mapped(); !mapped.empty() || size == 0) {
    Gguf file;
    file.source_ = source;
    if (auto ok = GgufReader(mapped, size, source->name(), file).read(); !ok) return failed(ok);
    return file;
  }
  // Without a mapping the header's length is unknown until it was read: take more and more of the file.
  for (std::uint64_t length = std::min<std::uint64_t>(kFirstRead, size);; length = std::min<std::uint64_t>(length * 2, size)) {
    Gguf file;
    file.source_ = source;
    file.header_ = std::make_shared<std::vector<std::byte>>(length);
    if (auto ok = source->read(0, *file.header_); !ok) return failed(ok);
    GgufReader reader(*file.header_, size, source->name(), file);
    auto ok = reader.read();
    if (ok) return file;
    if (!reader.more()) return failed(ok);
  }
}

const GgufValue* Gguf::find(std::string_view key) const {
  const auto it = keys_.find(key);
  return it == keys_.end() ? nullptr : &metadata_[it->second].second;
}

bool Gguf::is_array(std::string_view key) const {
  const GgufValue* value = find(key);
  return value && value->type == GgufType::array;
}

const GgufTensor* Gguf::tensor(std::string_view name) const {
  const auto it = names_.find(name);
  return it == names_.end() ? nullptr : &tensors_[it->second];
}

namespace {

std::unexpected<Error> missing(std::string_view key) { return fail(ErrorCode::not_found, cat("key ", quoted(key), " is missing")); }

std::unexpected<Error> wrong_type(std::string_view key, const GgufValue& value, std::string_view expected) {
  const std::string found = value.type == GgufType::array ? cat("an array of ", value.count, " ", name(value.element)) : std::string(name(value.type));
  return fail(cat("key ", quoted(key), " is ", found, ", expected ", expected));
}

}  // namespace

Result<std::uint64_t> Gguf::get_u64(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  const Integer n = value->type == GgufType::boolean ? Integer{} : integer_at(value->type, value->data.data());
  if (!n.ok) return wrong_type(key, *value, "an integer");
  if (n.negative) return fail(cat("key ", quoted(key), " is negative"));
  return n.value;
}

Result<float> Gguf::get_f32(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  if (value->type == GgufType::f32) return load<float>(value->data.data());
  if (value->type == GgufType::f64) return static_cast<float>(load<double>(value->data.data()));
  const Integer n = value->type == GgufType::boolean ? Integer{} : integer_at(value->type, value->data.data());
  if (!n.ok) return wrong_type(key, *value, "a number");
  return n.negative ? static_cast<float>(static_cast<std::int64_t>(n.value)) : static_cast<float>(n.value);
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
  const std::size_t each = scalar_bytes(value->element);
  if (each == 0 || value->element == GgufType::f32 || value->element == GgufType::f64) return wrong_type(key, *value, "integers");
  if (array && value->count != count) return fail(cat("key ", quoted(key), " has ", value->count, " entries, expected one for each of the ", count, " layers"));
  std::vector<std::uint32_t> out(count);
  for (std::size_t i = 0; i < count; i++) {
    const Integer n = integer_at(value->element, value->data.data() + (array ? i * each : 0));
    if (n.negative || n.value > std::numeric_limits<std::uint32_t>::max()) return fail(cat("key ", quoted(key), ": entry ", i, " is out of range"));
    out[i] = static_cast<std::uint32_t>(n.value);
  }
  return out;
}

Result<std::vector<double>> Gguf::get_numbers(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  const std::size_t each = scalar_bytes(value->element);
  if (value->type != GgufType::array || each == 0) return wrong_type(key, *value, "an array of numbers");
  std::vector<double> out(value->count);
  for (std::size_t i = 0; i < out.size(); i++) {
    const std::byte* p = value->data.data() + i * each;
    if (value->element == GgufType::f32) {
      out[i] = load<float>(p);
    } else if (value->element == GgufType::f64) {
      out[i] = load<double>(p);
    } else {
      const Integer n = integer_at(value->element, p);
      out[i] = n.negative ? static_cast<double>(static_cast<std::int64_t>(n.value)) : static_cast<double>(n.value);
    }
  }
  return out;
}

Result<std::vector<std::string_view>> Gguf::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return missing(key);
  if (value->type != GgufType::array || value->element != GgufType::string) return wrong_type(key, *value, "an array of strings");
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
