// What an op sees when it runs on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/crew.h"
#include "ops/op.h"

namespace rullama {

// A tensor in host memory, weights in their file's blocks.
struct CpuView {
  TensorDesc desc;
  std::byte* data = nullptr;

  [[nodiscard]] const Shape& shape() const { return desc.shape; }
  [[nodiscard]] std::span<float> f32() const { return {reinterpret_cast<float*>(data), desc.shape.elements()}; }
  [[nodiscard]] std::span<std::uint32_t> u32() const {
    return {reinterpret_cast<std::uint32_t*>(data), desc.shape.elements()};
  }
  // Row r of an F32 tensor.
  [[nodiscard]] std::span<float> row(std::uint64_t r) const {
    const std::uint64_t n = desc.shape.back();
    return {reinterpret_cast<float*>(data) + r * n, n};
  }
  // Decodes row r of a tensor of any type.
  void decode_row(std::uint64_t r, std::span<float> out) const;
};

struct CpuCall {
  std::span<const CpuView> in, out;
  Crew& crew;
  Precision precision;
};

}  // namespace rullama
