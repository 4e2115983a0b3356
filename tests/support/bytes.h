// Files in memory.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/file.h"

namespace rullama::test {

class MemorySink final : public ByteSink {
 public:
  Result<> write(std::span<const std::byte> data) override {
    bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    return {};
  }
  std::string bytes;
};

inline std::shared_ptr<const ByteSource> memory_file(std::string_view bytes, std::string name = "test.file") {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return std::make_shared<MemorySource>(std::move(name), std::vector<std::byte>(begin, begin + bytes.size()));
}

// The bytes of a number as they lie in files.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

}  // namespace rullama::test
