// Where bytes of a file come from: a mapped file natively, OPFS in the browser, memory in tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rullama/result.h"

namespace rullama {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  // Fills `dst` from `offset`; an error if any byte lies past the end or cannot be read.
  [[nodiscard]] virtual Result<> read(std::uint64_t offset, std::span<std::byte> dst) const = 0;
  // The whole content as memory where that costs nothing (a mapping), else empty.
  [[nodiscard]] virtual std::span<const std::byte> mapped() const { return {}; }
  // Tells the system that [offset, offset+length) of the mapping is not needed in memory any more.
  virtual void release(std::uint64_t offset, std::uint64_t length) const { (void)offset, (void)length; }
  [[nodiscard]] virtual const std::string& name() const = 0;  // for messages
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::vector<std::byte> bytes) : name_(std::move(name)), bytes_(std::move(bytes)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<> read(std::uint64_t offset, std::span<std::byte> dst) const override;
  std::span<const std::byte> mapped() const override { return bytes_; }
  const std::string& name() const override { return name_; }

 private:
  std::string name_;
  std::vector<std::byte> bytes_;
};

// Where bytes of a new file go.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  [[nodiscard]] virtual Result<> write(std::span<const std::byte> data) = 0;
};

// Writes the data of tensor `index` of a new file, in as many pieces as it likes.
using TensorData = std::function<Result<>(std::size_t index, ByteSink& sink)>;

// Passes on at most `limit` bytes and knows how many are still to come.
class LimitedSink final : public ByteSink {
 public:
  LimitedSink(ByteSink& sink, std::uint64_t limit) : sink_(sink), left_(limit) {}
  [[nodiscard]] Result<> write(std::span<const std::byte> data) override;
  [[nodiscard]] std::uint64_t left() const { return left_; }

 private:
  ByteSink& sink_;
  std::uint64_t left_;
};

}  // namespace rullama
