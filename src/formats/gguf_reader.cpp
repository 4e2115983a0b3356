// From a file's first bytes to a checked table of keys and tensors.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "base/utf8.h"
#include "formats/ggml_types.h"
#include "formats/gguf.h"

namespace rullama {
namespace {

constexpr std::uint64_t kMaxKeyBytes = 65535, kMinAlignment = 8, kMaxAlignment = 65536;
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kFirstRead = 1u << 20;
constexpr std::uint64_t kSmallestPair = 8 + 1 + 4 + 1, kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;

bool is_name(std::string_view text) {
  return !text.empty() && text.find('\0') == std::string_view::npos && utf8::valid(text);
}

// Indices of `names` in the order of their texts; `twice` becomes a name that occurs more than once.
template <class NameAt>
std::vector<std::uint32_t> order_by_name(std::size_t count, NameAt name_at, std::optional<std::string_view>& twice) {
  std::vector<std::uint32_t> order(count);
  for (std::uint32_t i = 0; i < count; i++) order[i] = i;
  std::ranges::sort(order, {}, name_at);
  const auto same = std::ranges::adjacent_find(order, {}, name_at);
  if (same != order.end()) twice = name_at(*same);
  return order;
}

}  // namespace

// Reads the header out of the first bytes of a file. If those end too early although the file goes on, `wanted` says
// how many it takes to get further.
class GgufReader {
 public:
  GgufReader(std::span<const std::byte> head, std::uint64_t file_size, const std::string& file_name, Gguf& out)
      : head_(head), size_(file_size), file_(quote(file_name, 200)), out_(out) {}

  static Result<Gguf> read(std::shared_ptr<const ByteSource> source) {
    const std::uint64_t size = source->size();
    std::uint64_t length = std::min(kFirstRead, size);
    for (;;) {
      Gguf file;
      std::shared_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(length);
      const std::span<std::byte> head(bytes.get(), length);
      if (auto ok = source->read(0, head); !ok) return failed(ok);
      GgufReader reader(head, size, source->name(), file);
      if (auto ok = reader.read_all(); !ok) {
        if (reader.wanted_ == 0) return failed(ok);
        if (reader.wanted_ > kMaxGgufHeader)
          return fail(cat(reader.file_, " has more than ", bytes_text(kMaxGgufHeader), " of metadata"));
        length = std::min({std::max(length * 2, reader.wanted_ + kFirstRead), size, kMaxGgufHeader});
        continue;
      }
      file.source_ = std::move(source);
      file.header_ = std::move(bytes);
      return file;
    }
  }

 private:
  Result<> read_all() {
    std::uint64_t tensors = 0, pairs = 0;
    if (auto ok = read_start(tensors, pairs); !ok) return ok;
    if (auto ok = read_metadata(pairs); !ok) return ok;
    if (auto ok = read_alignment(); !ok) return ok;
    if (auto ok = read_tensors(tensors); !ok) return ok;
    return place_tensors();
  }

  template <class... Parts>
  std::unexpected<Error> wrong(const Parts&... parts) const {
    return fail(cat(file_, ": ", parts...));
  }

  // The next `n` bytes, or an error that says what is missing.
  Result<std::span<const std::byte>> take(std::uint64_t n, std::string_view what) {
    if (n > size_ - at_) return fail(cat(file_, " ends within ", what, "; the file is cut short or damaged"));
    if (n > head_.size() - at_) {
      wanted_ = at_ + n;
      return fail({});
    }
    const auto piece = head_.subspan(at_, n);
    at_ += n;
    return piece;
  }
  template <class T>
  Result<T> number(std::string_view what) {
    auto piece = take(sizeof(T), what);
    if (!piece) return failed(piece);
    T value;
    std::memcpy(&value, piece->data(), sizeof value);
    return value;
  }
  Result<std::string_view> string(std::string_view what, std::uint64_t longest) {
    auto length = number<std::uint64_t>(what);
    if (!length) return failed(length);
    if (*length > longest) return wrong(what, " has a length of ", *length, " bytes; at most ", longest, " can be");
    auto piece = take(*length, what);
    if (!piece) return failed(piece);
    return std::string_view(reinterpret_cast<const char*>(piece->data()), piece->size());
  }

  Result<> read_start(std::uint64_t& tensors, std::uint64_t& pairs) {
    if (size_ == 0) return fail(cat(file_, " is empty"));
    auto magic = take(4, "its first four bytes");
    if (!magic) return failed(magic);
    if (std::memcmp(magic->data(), "GGUF", 4) != 0)
      return fail(cat(file_, " is not a GGUF file: it does not begin with 'GGUF'"));
    auto version = number<std::uint32_t>("the version");
    if (!version) return failed(version);
    if (*version == 0x02000000 || *version == 0x03000000)
      return fail(ErrorCode::unsupported, cat(file_, " is a big-endian GGUF file; convert it to little-endian"));
    if (*version != 2 && *version != 3)
      return fail(ErrorCode::unsupported, cat(file_, " has GGUF version ", *version, "; versions 2 and 3 can be read"));
    out_.version_ = *version;
    auto t = number<std::uint64_t>("the tensor count");
    if (!t) return failed(t);
    auto p = number<std::uint64_t>("the metadata count");
    if (!p) return failed(p);
    tensors = *t;
    pairs = *p;
    if (auto ok = check_count("tensor", tensors, kSmallestTensor, kMaxGgufTensors); !ok) return ok;
    return check_count("metadata", pairs, kSmallestPair, kMaxGgufKeys);
  }
  Result<> check_count(std::string_view what, std::uint64_t count, std::uint64_t each, std::uint64_t most) const {
    if (count > (size_ - at_) / each) return wrong(what, " count ", count, " is more than the file can hold");
    if (count > most) return wrong(what, " count ", count, " is above the limit of ", most);
    return {};
  }

  Result<> read_metadata(std::uint64_t pairs) {
    out_.metadata_.reserve(pairs);
    for (std::uint64_t i = 0; i < pairs; i++) {
      auto key = string(cat("metadata key ", i), kMaxKeyBytes);
      if (!key) return failed(key);
      if (!is_name(*key)) return wrong("metadata key ", i, ", ", quote(*key), ", is empty or no text");
      auto value = read_value(quote(*key));
      if (!value) return failed(value);
      out_.metadata_.emplace_back(*key, *value);
    }
    std::optional<std::string_view> twice;
    out_.key_order_ = order_by_name(pairs, [&](std::uint32_t i) { return out_.metadata_[i].first; }, twice);
    if (twice) return wrong("key ", quote(*twice), " occurs twice");
    return {};
  }

  Result<GgufType> read_type(std::string_view what, std::string_view key) {
    auto type = number<std::uint32_t>(cat("the type of key ", key));
    if (!type) return failed(type);
    if (*type > static_cast<std::uint32_t>(GgufType::f64))
      return wrong("key ", key, " has ", what, " ", *type, ", which does not exist");
    return static_cast<GgufType>(*type);
  }

  Result<GgufValue> read_value(const std::string& key) {
    GgufValue value;
    auto type = read_type("value type", key);
    if (!type) return failed(type);
    value.type = value.element = *type;
    const std::string what = cat("the value of key ", key);
    if (value.type == GgufType::array) {
      auto element = read_type("array element type", key);
      if (!element) return failed(element);
      if (*element == GgufType::array)
        return fail(ErrorCode::unsupported, cat(file_, ": key ", key, " is an array of arrays, which no model needs"));
      value.element = *element;
      auto count = number<std::uint64_t>(what);
      if (!count) return failed(count);
      value.count = *count;
    }
    const bool strings = value.element == GgufType::string;
    const std::size_t each = strings ? 8 : scalar_bytes(value.element);  // a string has at least its length
    if (value.type == GgufType::array && value.count > (size_ - at_) / each)
      return wrong("key ", key, " has ", value.count, " entries, more than the file can hold");
    if (strings && value.count > kMaxGgufEntries)
      return wrong("key ", key, " has ", value.count, " strings, above the limit of ", kMaxGgufEntries);
    const std::size_t start = at_;
    if (!strings) {
      if (auto piece = take(value.count * each, what); !piece) return failed(piece);
    } else {
      for (std::uint64_t i = 0; i < value.count; i++)
        if (auto s = string(what, kMaxGgufText); !s) return failed(s);
    }
    value.data = head_.subspan(start, at_ - start);
    return value;
  }

  Result<> read_alignment() {
    const GgufValue* value = out_.find("general.alignment");
    if (!value) return {};
    if (value->type != GgufType::u32)
      return wrong("key 'general.alignment' is of type ", name(value->type), ", expected u32");
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, value->data.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment)
      return wrong("key 'general.alignment' is ", alignment, ", expected a power of two from ", kMinAlignment, " to ",
                   kMaxAlignment);
    out_.alignment_ = alignment;
    return {};
  }

  Result<> read_tensors(std::uint64_t count) {
    out_.tensors_.reserve(count);
    for (std::uint64_t i = 0; i < count; i++) {
      auto name = string(cat("the name of tensor ", i), kMaxGgufTensorName);
      if (!name) return failed(name);
      if (!is_name(*name)) return wrong("the name of tensor ", i, ", ", quote(*name), ", is empty or no text");
      auto tensor = read_tensor(*name);
      if (!tensor) return failed(tensor);
      out_.tensors_.push_back(*tensor);
    }
    std::optional<std::string_view> twice;
    out_.tensor_order_ = order_by_name(count, [&](std::uint32_t i) { return out_.tensors_[i].name; }, twice);
    if (twice) return wrong("tensor ", quote(*twice), " occurs twice");
    return {};
  }

  Result<GgufTensor> read_tensor(std::string_view tensor_name) {
    GgufTensor t;
    t.name = tensor_name;
    const std::string who = cat("tensor ", quote(tensor_name)), what = "the entry of " + who;
    auto rank = number<std::uint32_t>(what);
    if (!rank) return failed(rank);
    if (*rank < 1 || *rank > 4) return wrong(who, " has ", *rank, " dimensions, expected 1 to 4");
    t.rank = *rank;
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < t.rank; d++) {
      auto dim = number<std::uint64_t>(what);
      if (!dim) return failed(dim);
      if (*dim == 0) return wrong(who, " has a dimension of 0");
      if (*dim > kMostBytes / elements) return wrong(who, " has dimensions whose product is too large");
      t.dims[d] = *dim;
      elements *= *dim;
    }
    auto type = number<std::uint32_t>(what);
    if (!type) return failed(type);
    const GgmlType known = ggml_type(*type);
    if (known.name.empty())
      return fail(ErrorCode::unsupported,
                  cat(file_, ": ", who, " has type number ", *type, ", which is unknown or was removed from GGUF"));
    t.ggml_type = *type;
    t.dtype = dtype_of_ggml(*type);
    if (t.dims[0] % known.block_elements != 0)
      return wrong(who, " has rows of ", t.dims[0], " elements, not a multiple of the ", known.block_elements, " of a ",
                   known.name, " block");
    const std::uint64_t blocks = elements / known.block_elements;
    if (blocks > kMostBytes / known.block_bytes) return wrong(who, " has more bytes than any file");
    t.bytes = blocks * known.block_bytes;
    auto offset = number<std::uint64_t>(what);
    if (!offset) return failed(offset);
    if (*offset % out_.alignment_ != 0)
      return wrong(who, " lies at offset ", *offset, ", not a multiple of the alignment ", out_.alignment_);
    t.offset = *offset;
    return t;
  }

  // Offsets count from the end of the header, rounded up to the alignment.
  Result<> place_tensors() {
    const std::uint64_t base = (at_ + out_.alignment_ - 1) / out_.alignment_ * out_.alignment_;
    std::vector<const GgufTensor*> order;
    order.reserve(out_.tensors_.size());
    for (GgufTensor& t : out_.tensors_) {
      if (base > size_ || t.offset > size_ - base || t.bytes > size_ - base - t.offset)
        return wrong("tensor ", quote(t.name), " needs ", t.bytes, " bytes at offset ", t.offset,
                     " of the data, past the end of the file, which is cut short or damaged");
      t.offset += base;
      order.push_back(&t);
    }
    std::ranges::sort(order, {}, &GgufTensor::offset);
    for (std::size_t i = 1; i < order.size(); i++)
      if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset)
        return wrong("tensors ", quote(order[i - 1]->name), " and ", quote(order[i]->name), " overlap");
    return {};
  }

  std::span<const std::byte> head_;
  std::uint64_t size_;
  std::string file_;
  Gguf& out_;
  std::size_t at_ = 0;
  std::uint64_t wanted_ = 0;
};

Result<Gguf> Gguf::read(std::shared_ptr<const ByteSource> source) { return GgufReader::read(std::move(source)); }

}  // namespace rullama
