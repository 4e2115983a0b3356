// safetensors files: adapters, edits, and what other programs write of models.
//
// A length, a JSON header that names each tensor's type, shape and place, then the data without gaps. The reader trusts
// none of it: every error names the file and the tensor or the byte of the header.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/dtype.h"
#include "formats/file.h"

namespace rullama {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 32'000'000;  // bytes
inline constexpr std::size_t kMaxSafetensorsTensors = 1u << 17, kMaxSafetensorsRank = 8;

struct SafetensorsTensor {
  std::string name;
  std::string_view type;       // as in the file: "F32", "BF16", "I64", ...
  std::optional<DType> dtype;  // F32, F16, BF16 and U32; empty for others
  std::array<std::uint64_t, kMaxSafetensorsRank> dims{};
  std::uint32_t rank = 0;
  std::uint64_t offset = 0;  // of the data in the file
  std::uint64_t bytes = 0;
  [[nodiscard]] std::span<const std::uint64_t> shape() const { return std::span(dims).first(rank); }  // slowest first
};

class Safetensors {
 public:
  [[nodiscard]] static Result<Safetensors> read(std::shared_ptr<const ByteSource> source);

  [[nodiscard]] const std::shared_ptr<const ByteSource>& source() const { return source_; }
  [[nodiscard]] std::span<const SafetensorsTensor> tensors() const { return tensors_; }  // by name
  [[nodiscard]] const SafetensorsTensor* tensor(std::string_view name) const;
  [[nodiscard]] std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }
  [[nodiscard]] const std::string* metadata(std::string_view key) const;

 private:
  Safetensors() = default;
  std::shared_ptr<const ByteSource> source_;
  std::vector<SafetensorsTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

class SafetensorsWriter {
 public:
  void set_metadata(std::string_view key, std::string_view text);
  // F32, F16, BF16 or U32; `shape` slowest first. An error if the name occurs twice or a reader would refuse it.
  [[nodiscard]] Result<> add_tensor(std::string_view name, DType dtype, std::span<const std::uint64_t> shape);
  // Calls `data` for each tensor in the order of add_tensor; it must write exactly the tensor's bytes.
  [[nodiscard]] Result<> write(ByteSink& sink, const TensorData& data) const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t bytes;
  };
  [[nodiscard]] std::string header() const;
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace rullama
