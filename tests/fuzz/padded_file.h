// A file of given bytes, and behind them as many zeros as one likes: headers can be tried without their data.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "formats/file.h"

namespace rullama::fuzz {

class PaddedFile final : public ByteSource {
 public:
  PaddedFile(std::span<const std::byte> bytes, std::uint64_t size) : bytes_(bytes), size_(size) {}
  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Result<> read(std::uint64_t offset, std::span<std::byte> dst) const override {
    if (offset > size_ || dst.size() > size_ - offset) return fail(ErrorCode::io, "past the end");
    const auto tail = bytes_.subspan(static_cast<std::size_t>(std::min<std::uint64_t>(offset, bytes_.size())));
    const std::size_t n = std::min(tail.size(), dst.size());
    if (n > 0) std::memcpy(dst.data(), tail.data(), n);
    std::fill(dst.begin() + static_cast<std::ptrdiff_t>(n), dst.end(), std::byte{0});
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t size_;
  std::string name_ = "fuzz";
};

}  // namespace rullama::fuzz
