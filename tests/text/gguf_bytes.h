// GGUF files of metadata alone, made in memory.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/file.h"
#include "formats/gguf.h"

namespace rullama::test {

class GgufBytes {
 public:
  void u32(std::string_view key, std::uint32_t value) { put(key, GgufType::u32, raw(value)); }
  void text(std::string_view key, std::string_view value) { put(key, GgufType::string, string(value)); }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    std::string body;
    for (const std::string& v : values) body += string(v);
    put(key, GgufType::array, array_head(GgufType::string, values.size()) + body);
  }
  // As an array, or the first one as a scalar.
  void floats(std::string_view key, const std::vector<float>& values, bool array = true) {
    numbers(key, GgufType::f32, values, array);
  }
  void ints(std::string_view key, const std::vector<std::int32_t>& values, bool array = true) {
    numbers(key, GgufType::i32, values, array);
  }
  void drop(std::string_view key) {
    std::erase_if(entries_, [&](const auto& e) { return e.first == key; });
  }

  [[nodiscard]] std::shared_ptr<const ByteSource> source() const {
    std::string file = "GGUF" + raw(std::uint32_t{3}) + raw(std::uint64_t{0}) + raw(std::uint64_t{entries_.size()});
    for (const auto& [key, value] : entries_) file += string(key) + value;
    file.resize((file.size() + 31) / 32 * 32);
    const auto* begin = reinterpret_cast<const std::byte*>(file.data());
    return std::make_shared<MemorySource>("test.gguf", std::vector<std::byte>(begin, begin + file.size()));
  }

 private:
  template <class T>
  static std::string raw(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string string(std::string_view s) { return raw(std::uint64_t{s.size()}) + std::string(s); }
  static std::string array_head(GgufType element, std::uint64_t count) {
    return raw(static_cast<std::uint32_t>(element)) + raw(count);
  }
  template <class T>
  void numbers(std::string_view key, GgufType type, const std::vector<T>& values, bool array) {
    std::string body;
    for (const T v : values) body += raw(v);
    put(key, array ? GgufType::array : type, array ? array_head(type, values.size()) + body : body);
  }
  void put(std::string_view key, GgufType type, const std::string& value) {
    drop(key);
    entries_.emplace_back(key, raw(static_cast<std::uint32_t>(type)) + value);
  }

  std::vector<std::pair<std::string, std::string>> entries_;
};

}  // namespace rullama::test
