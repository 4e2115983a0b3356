#include "formats/gguf_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "base/utf8.h"
#include "formats/ggml_types.h"

namespace rullama {
namespace {

template <class T>
void append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}
void append(std::string& out, std::string_view text) {
  append(out, std::uint64_t{text.size()});
  out += text;
}
void append(std::string& out, GgufType type) { append(out, static_cast<std::uint32_t>(type)); }

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> as_data(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

GgufWriter::GgufWriter(std::uint32_t alignment) : alignment_(alignment) {
  if (alignment != 32) set("general.alignment", alignment);
}

void GgufWriter::replace(std::string_view key, std::string value) {
  const auto it = std::ranges::find(entries_, key, &Entry::key);
  if (it == entries_.end())
    entries_.push_back({std::string(key), std::move(value)});
  else
    it->value = std::move(value);
}

void GgufWriter::put(std::string_view key, GgufType type, std::span<const std::byte> value) {
  std::string out;
  append(out, type);
  out += as_text(value);
  replace(key, std::move(out));
}

void GgufWriter::put_array(std::string_view key, GgufType element, std::uint64_t count,
                           std::span<const std::byte> values) {
  std::string out;
  append(out, GgufType::array);
  append(out, element);
  append(out, count);
  out += as_text(values);
  replace(key, std::move(out));
}

void GgufWriter::set(std::string_view key, std::string_view text) {
  std::string value;
  append(value, text);
  put(key, GgufType::string, as_data(value));
}

void GgufWriter::set_array(std::string_view key, std::span<const std::string_view> texts) {
  std::string values;
  for (const std::string_view text : texts) append(values, text);
  put_array(key, GgufType::string, texts.size(), as_data(values));
}

void GgufWriter::set(std::string_view key, const GgufValue& value) {
  if (value.type == GgufType::array)
    put_array(key, value.element, value.count, value.data);
  else
    put(key, value.type, value.data);
}

void GgufWriter::erase(std::string_view key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}

Result<> GgufWriter::add_tensor(std::string_view name, std::span<const std::uint64_t> dims, std::uint32_t type) {
  const std::string who = cat("tensor ", quote(name));
  if (name.empty() || name.size() > kMaxGgufTensorName || name.find('\0') != name.npos || !utf8::valid(name))
    return fail(cat(who, " cannot be written: a name is a text of 1 to ", kMaxGgufTensorName, " bytes"));
  if (std::ranges::find(tensors_, name, &Tensor::name) != tensors_.end())
    return fail(cat(who, " occurs twice in the file to write"));
  const GgmlType known = ggml_type(type);
  if (known.name.empty()) return fail(cat(who, " has type number ", type, ", which GGUF does not have"));
  if (dims.empty() || dims.size() > 4) return fail(cat(who, " has ", dims.size(), " dimensions, expected 1 to 4"));
  std::uint64_t bytes = known.block_bytes;
  for (std::size_t d = 0; d < dims.size(); d++) {
    const std::uint64_t units = d == 0 ? dims[0] / known.block_elements : dims[d];
    if (units == 0 || (d == 0 && dims[0] % known.block_elements != 0) ||
        units > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) / bytes)
      return fail(cat(who, " has shape ", list(dims), ", which cannot be stored as ", known.name));
    bytes *= units;
  }
  tensors_.push_back({std::string(name), {dims.begin(), dims.end()}, type, bytes});
  return {};
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  append(out, std::uint32_t{3});
  append(out, std::uint64_t{tensors_.size()});
  append(out, std::uint64_t{entries_.size()});
  for (const Entry& entry : entries_) {
    append(out, std::string_view(entry.key));
    out += entry.value;
  }
  std::uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    append(out, std::string_view(t.name));
    append(out, static_cast<std::uint32_t>(t.dims.size()));
    for (const std::uint64_t dim : t.dims) append(out, dim);
    append(out, t.ggml_type);
    append(out, offset);
    offset += (t.bytes + alignment_ - 1) / alignment_ * alignment_;
  }
  return out;
}

Result<> GgufWriter::write(ByteSink& sink, const TensorData& data) const {
  const std::vector<std::byte> zeros(alignment_);
  const auto padding = [&](std::uint64_t length) {
    return std::span(zeros).first(static_cast<std::size_t>((alignment_ - length % alignment_) % alignment_));
  };
  const std::string head = header();
  if (auto ok = sink.write(as_data(head)); !ok) return ok;
  if (auto ok = sink.write(padding(head.size())); !ok) return ok;
  for (std::size_t i = 0; i < tensors_.size(); i++) {
    const Tensor& t = tensors_[i];
    LimitedSink body(sink, t.bytes);
    if (auto ok = data(i, body); !ok) return ok;
    if (body.left() > 0) return fail(cat("tensor ", quote(t.name), " was given ", body.left(), " bytes too few"));
    if (auto ok = sink.write(padding(t.bytes)); !ok) return ok;
  }
  return {};
}

}  // namespace rullama
