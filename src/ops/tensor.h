// Shapes, tensor descriptions and tensors that a backend keeps.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "formats/dtype.h"

namespace rullama {

// Up to four dimensions, row-major, last fastest. A weight matrix is [outputs, inputs].
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::uint64_t> dims) {
    for (const std::uint64_t d : dims) dims_[rank_++] = d;
  }
  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::uint64_t operator[](std::size_t i) const { return dims_[i]; }
  [[nodiscard]] std::uint64_t& operator[](std::size_t i) { return dims_[i]; }
  [[nodiscard]] std::uint64_t back() const { return rank_ ? dims_[rank_ - 1] : 1; }  // elements of a row
  [[nodiscard]] std::uint64_t elements() const {
    std::uint64_t n = 1;
    for (std::size_t i = 0; i < rank_; i++) n *= dims_[i];
    return n;
  }
  // The product of all dimensions but the last.
  [[nodiscard]] std::uint64_t rows() const {
    std::uint64_t n = 1;
    for (std::size_t i = 0; i + 1 < rank_; i++) n *= dims_[i];
    return n;
  }
  [[nodiscard]] bool operator==(const Shape&) const = default;
  [[nodiscard]] std::string str() const;  // "[4, 256]"

 private:
  std::array<std::uint64_t, kMaxRank> dims_{};
  std::size_t rank_ = 0;
};

struct TensorDesc {
  DType dtype = DType::F32;
  Shape shape;
  // Bytes in a file and on the CPU.
  [[nodiscard]] std::uint64_t bytes() const { return shape.rows() * row_bytes(dtype, shape.back()); }
  [[nodiscard]] bool operator==(const TensorDesc&) const = default;
  [[nodiscard]] std::string str() const;  // "Q4_K [640, 1024]"
};

// A tensor that outlives programs: a weight, a cache. Made by a backend and usable only with it.
class Tensor {
 public:
  virtual ~Tensor() = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  [[nodiscard]] const TensorDesc& desc() const { return desc_; }

 protected:
  explicit Tensor(TensorDesc desc) : desc_(desc) {}
  TensorDesc desc_;
};

}  // namespace rullama
