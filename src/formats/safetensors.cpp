#include "formats/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "base/utf8.h"

namespace rullama {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();

struct ElementType {
  std::string_view name;
  std::uint32_t bytes;
};
constexpr ElementType kTypes[] = {{"F32", 4},  {"F16", 2}, {"BF16", 2},    {"F64", 8},     {"I64", 8},    {"I32", 4},
                                  {"I16", 2},  {"I8", 1},  {"U64", 8},     {"U32", 4},     {"U16", 2},    {"U8", 1},
                                  {"BOOL", 1}, {"C64", 8}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};

std::optional<DType> dtype_of(std::string_view type) {
  if (type == "F32") return DType::F32;
  if (type == "F16") return DType::F16;
  if (type == "BF16") return DType::BF16;
  if (type == "U32") return DType::U32;
  return {};
}

// The JSON of a header, which has a fixed form: objects two deep, strings, and lists of whole numbers.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::uint64_t data_offset, std::uint64_t data_bytes, std::string file)
      : text_(text), data_offset_(data_offset), data_bytes_(data_bytes), file_(std::move(file)) {}

  Result<> read(std::vector<SafetensorsTensor>& tensors, std::vector<std::pair<std::string, std::string>>& metadata) {
    bool seen_metadata = false;
    const auto entry = [&](std::string name) -> Result<> {
      if (name == kMetadata) {
        if (std::exchange(seen_metadata, true)) return broken("'__metadata__' occurs twice");
        return read_metadata(metadata);
      }
      if (tensors.size() >= kMaxSafetensorsTensors)
        return fail(cat(file_, " has more than ", kMaxSafetensorsTensors, " tensors"));
      auto tensor = read_tensor(std::move(name));
      if (!tensor) return failed(tensor);
      tensors.push_back(std::move(*tensor));
      return {};
    };
    if (auto ok = object(entry); !ok) return ok;
    skip_space();
    if (at_ < text_.size()) return broken("text after the end");
    return {};
  }

 private:
  std::unexpected<Error> broken(std::string_view why) const {
    return fail(cat(file_, ": the header is damaged at its byte ", at_, ": ", why));
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) at_++;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    at_++;
    return true;
  }
  Result<> expect(char c) {
    if (accept(c)) return {};
    return broken(cat("expected '", c, "'"));
  }

  // {"name": value, ...}; `value` reads what follows the colon.
  template <class Value>
  Result<> object(Value value) {
    if (auto ok = expect('{'); !ok) return ok;
    if (accept('}')) return {};
    do {
      auto name = string();
      if (!name) return failed(name);
      if (auto ok = expect(':'); !ok) return ok;
      if (auto ok = value(std::move(*name)); !ok) return ok;
    } while (accept(','));
    return expect('}');
  }

  Result<std::string> string() {
    if (auto ok = expect('"'); !ok) return failed(ok);
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') {
        if (auto ok = escape(out); !ok) return failed(ok);
        continue;
      }
      const std::size_t n = utf8::valid_length(text_.substr(at_, 4));
      if (n == 0) return broken("invalid UTF-8");
      if (static_cast<unsigned char>(text_[at_]) < 0x20) return broken("a control character in a string");
      out += text_.substr(at_, n);
      at_ += n;
    }
    if (at_ >= text_.size()) return broken("a string without an end");
    at_++;
    return out;
  }
  Result<> escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
    if (at_ + 1 >= text_.size()) return broken("a string without an end");
    const char c = text_[at_ + 1];
    if (const auto i = letters.find(c); i != std::string_view::npos) {
      out += meant[i];
      at_ += 2;
      return {};
    }
    auto code = hex_escape();
    if (code && *code >= 0xd800 && *code < 0xdc00) {
      const auto low = hex_escape();
      code = low && *low >= 0xdc00 && *low < 0xe000
                 ? std::optional(0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00))
                 : std::nullopt;
    } else if (code && *code >= 0xdc00 && *code < 0xe000) {
      code.reset();
    }
    if (!code) return broken("a wrong escape");
    utf8::append(out, *code);
    return {};
  }
  // \uXXXX
  std::optional<std::uint32_t> hex_escape() {
    if (text_.substr(at_, 2) != "\\u" || text_.size() - at_ < 6) return {};
    std::uint32_t code = 0;
    for (const char c : text_.substr(at_ + 2, 4)) {
      const bool digit = c >= '0' && c <= '9', lower = c >= 'a' && c <= 'f', upper = c >= 'A' && c <= 'F';
      if (!digit && !lower && !upper) return {};
      code = code * 16 + static_cast<std::uint32_t>(digit ? c - '0' : lower ? c - 'a' + 10 : c - 'A' + 10);
    }
    at_ += 6;
    return code;
  }

  Result<std::uint64_t> number() {
    skip_space();
    const std::size_t start = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; at_++) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      if (value > (kMostBytes - digit) / 10) return broken("a number that is too large");
      value = value * 10 + digit;
    }
    if (at_ == start || (text_[start] == '0' && at_ - start > 1)) return broken("expected a whole number");
    return value;
  }
  // [1, 2, ...]; returns how many.
  Result<std::uint32_t> numbers(std::span<std::uint64_t> out) {
    if (auto ok = expect('['); !ok) return failed(ok);
    std::uint32_t count = 0;
    if (accept(']')) return count;
    do {
      if (count == out.size()) return broken(cat("more than ", out.size(), " numbers"));
      auto n = number();
      if (!n) return failed(n);
      out[count++] = *n;
    } while (accept(','));
    if (auto ok = expect(']'); !ok) return failed(ok);
    return count;
  }

  Result<> read_metadata(std::vector<std::pair<std::string, std::string>>& metadata) {
    return object([&](std::string key) -> Result<> {
      if (metadata.size() >= kMaxSafetensorsTensors) return broken("too many entries in '__metadata__'");
      auto text = string();
      if (!text) return failed(text);
      metadata.emplace_back(std::move(key), std::move(*text));
      return {};
    });
  }

  Result<SafetensorsTensor> read_tensor(std::string name) {
    SafetensorsTensor t;
    t.name = std::move(name);
    const std::string who = cat(file_, ": tensor ", quote(t.name));
    std::uint64_t element_bytes = 0;
    std::array<std::uint64_t, 2> range{};
    bool has_type = false, has_shape = false, has_range = false;
    const auto field = [&](const std::string& key) -> Result<> {
      if (key == "dtype" && !std::exchange(has_type, true)) {
        auto type = string();
        if (!type) return failed(type);
        const auto known = std::ranges::find(kTypes, *type, &ElementType::name);
        if (known == std::end(kTypes)) return fail(cat(who, " has the unknown type ", quote(*type)));
        t.type = known->name;
        t.dtype = dtype_of(t.type);
        element_bytes = known->bytes;
        return {};
      }
      if (key == "shape" && !std::exchange(has_shape, true)) {
        auto rank = numbers(t.dims);
        if (!rank) return failed(rank);
        t.rank = *rank;
        return {};
      }
      if (key == "data_offsets" && !std::exchange(has_range, true)) {
        auto count = numbers(range);
        if (!count) return failed(count);
        return *count == 2 ? Result<>() : fail(cat(who, " needs two data_offsets"));
      }
      return fail(cat(who, " has a repeated or unknown entry ", quote(key)));
    };
    if (auto ok = object(field); !ok) return failed(ok);
    if (!has_type || !has_shape || !has_range) return fail(cat(who, " lacks dtype, shape or data_offsets"));
    if (range[0] > range[1]) return fail(cat(who, " has data_offsets in the wrong order"));
    if (range[1] > data_bytes_)
      return fail(cat(who, " reaches byte ", range[1], " of ", data_bytes_,
                      " bytes of data; the file is cut short or damaged"));
    std::uint64_t bytes = element_bytes;
    for (const std::uint64_t dim : t.shape()) {
      if (bytes != 0 && dim > kMostBytes / bytes) return fail(cat(who, " has a shape whose product is too large"));
      bytes *= dim;
    }
    t.offset = data_offset_ + range[0];
    t.bytes = range[1] - range[0];
    if (t.bytes != bytes)
      return fail(
          cat(who, " has ", t.bytes, " bytes of data, but ", t.type, " of shape ", list(t.shape()), " takes ", bytes));
    return t;
  }

  std::string_view text_;
  std::uint64_t data_offset_, data_bytes_;
  std::string file_;
  std::size_t at_ = 0;
};

// The format allows neither gaps nor overlaps, so that nothing can hide in a file.
Result<> check_cover(std::vector<SafetensorsTensor>& tensors, std::uint64_t begin, std::uint64_t end,
                     const std::string& file) {
  std::ranges::sort(tensors, [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.offset + a.bytes) < std::pair(b.offset, b.offset + b.bytes);
  });
  for (const SafetensorsTensor& t : tensors) {
    if (t.offset != begin)
      return fail(cat(file, ": tensor ", quote(t.name), t.offset < begin ? " overlaps another" : " lies behind a gap"));
    begin += t.bytes;
  }
  if (begin != end) return fail(cat(file, " has ", end - begin, " bytes after its last tensor"));
  return {};
}

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    } else {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    }
  }
  out += '"';
}

}  // namespace

Result<Safetensors> Safetensors::read(std::shared_ptr<const ByteSource> source) {
  const std::string file = quote(source->name(), 200);
  const std::uint64_t size = source->size();
  if (size < 8) return fail(cat(file, size == 0 ? " is empty" : " is too short to be a safetensors file"));
  std::uint64_t length = 0;
  if (auto ok = source->read(0, std::as_writable_bytes(std::span(&length, 1))); !ok) return failed(ok);
  if (length > size - 8)
    return fail(cat(file, " is no safetensors file or is cut short: its header would have ", length, " bytes"));
  if (length > kMaxSafetensorsHeader)
    return fail(cat(file, " has a header of ", length, " bytes, above the limit of ", kMaxSafetensorsHeader));
  std::string header(static_cast<std::size_t>(length), '\0');
  if (auto ok = source->read(8, std::as_writable_bytes(std::span(header))); !ok) return failed(ok);

  Safetensors out;
  if (auto ok = HeaderReader(header, 8 + length, size - 8 - length, file).read(out.tensors_, out.metadata_); !ok)
    return failed(ok);
  if (auto ok = check_cover(out.tensors_, 8 + length, size, file); !ok) return failed(ok);
  std::ranges::sort(out.tensors_, {}, &SafetensorsTensor::name);
  const auto twice = std::ranges::adjacent_find(out.tensors_, {}, &SafetensorsTensor::name);
  if (twice != out.tensors_.end()) return fail(cat(file, ": tensor ", quote(twice->name), " occurs twice"));
  std::ranges::sort(out.metadata_);
  const auto key = std::ranges::adjacent_find(out.metadata_, {}, &std::pair<std::string, std::string>::first);
  if (key != out.metadata_.end()) return fail(cat(file, ": metadata key ", quote(key->first), " occurs twice"));
  out.source_ = std::move(source);
  return out;
}

const SafetensorsTensor* Safetensors::tensor(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors_, name, {}, &SafetensorsTensor::name);
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

const std::string* Safetensors::metadata(std::string_view key) const {
  const auto it = std::ranges::lower_bound(metadata_, key, {}, &std::pair<std::string, std::string>::first);
  return it != metadata_.end() && it->first == key ? &it->second : nullptr;
}

void SafetensorsWriter::set_metadata(std::string_view key, std::string_view text) {
  const auto it = std::ranges::find(metadata_, key, &std::pair<std::string, std::string>::first);
  if (it == metadata_.end())
    metadata_.emplace_back(utf8::repair(key), utf8::repair(text));
  else
    it->second = utf8::repair(text);
}

Result<> SafetensorsWriter::add_tensor(std::string_view name, DType dtype, std::span<const std::uint64_t> shape) {
  const std::string who = cat("tensor ", quote(name));
  if (!utf8::valid(name) || name == kMetadata) return fail(cat(who, " cannot be written under this name"));
  if (std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end())
    return fail(cat(who, " occurs twice in the file to write"));
  if (!dtype_of(rullama::name(dtype)))
    return fail(cat(who, " is of type ", rullama::name(dtype), ", which safetensors does not have"));
  if (shape.size() > kMaxSafetensorsRank) return fail(cat(who, " has ", shape.size(), " dimensions"));
  std::uint64_t bytes = info(dtype).block_bytes;
  for (const std::uint64_t dim : shape) {
    if (bytes != 0 && dim > kMostBytes / bytes) return fail(cat(who, " has a shape whose product is too large"));
    bytes *= dim;
  }
  tensors_.push_back({std::string(name), dtype, {shape.begin(), shape.end()}, bytes});
  return {};
}

std::string SafetensorsWriter::header() const {
  std::string out = "{";
  const auto separate = [&] {
    if (out.back() != '{') out += ',';
  };
  if (!metadata_.empty()) {
    append_json(out, kMetadata);
    out += ":{";
    for (const auto& [key, text] : metadata_) {
      separate();
      append_json(out, key);
      out += ':';
      append_json(out, text);
    }
    out += '}';
  }
  std::uint64_t begin = 0;
  for (const Tensor& t : tensors_) {
    separate();
    append_json(out, t.name);
    const std::uint64_t range[] = {begin, begin + t.bytes};
    out += cat(":{\"dtype\":\"", name(t.dtype), "\",\"shape\":", list(std::span(t.shape)),
               ",\"data_offsets\":", list(std::span(range)), "}");
    begin += t.bytes;
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');  // so that the data is aligned
  return out;
}

Result<> SafetensorsWriter::write(ByteSink& sink, const TensorData& data) const {
  const std::string head = header();
  const std::uint64_t length = head.size();
  if (auto ok = sink.write(std::as_bytes(std::span(&length, 1))); !ok) return ok;
  if (auto ok = sink.write(std::as_bytes(std::span(head))); !ok) return ok;
  for (std::size_t i = 0; i < tensors_.size(); i++) {
    LimitedSink body(sink, tensors_[i].bytes);
    if (auto ok = data(i, body); !ok) return ok;
    if (body.left() > 0)
      return fail(cat("tensor ", quote(tensors_[i].name), " was given ", body.left(), " bytes too few"));
  }
  return {};
}

}  // namespace rullama
