// What a program takes of a GPU's memory.
#include <gtest/gtest.h>

#include <cstring>

#include "host/native/crew.h"
#include "ops/cpu_backend.h"
#include "ops/elementwise/elementwise.h"
#include "ops/gpu_backend.h"
#include "ops/matmul/matmul.h"
#include "support/gpu_device.h"

namespace rullama {
namespace {

// Three activations of one size, of which a product reads the third: its result lies in the first, and the parts that
// its sums are done in, half as large, have room in the second.
class PartsOfProduct {
 public:
  static constexpr std::uint64_t kRows = 64, kTerms = 2048;

  PartsOfProduct() {
    x_ = graph_.input("x", {DType::F32, {kRows, kTerms}});
    w_ = graph_.input("w", {DType::F32, {kRows, kTerms}});
    y_ = matmul(add(scale(x_, 2), scale(x_, 3)), w_);
    graph_.keep(y_);
  }
  [[nodiscard]] const Graph& graph() const { return graph_; }

  [[nodiscard]] Result<std::vector<float>> run(Program& program) const {
    std::vector<float> x(kRows * kTerms), w(x.size()), y(kRows * kRows);
    for (std::size_t i = 0; i < x.size(); i++) {
      x[i] = static_cast<float>(i % 17) - 8;
      w[i] = static_cast<float>(i % 13) - 6;
    }
    if (auto ok = program.write(x_, std::as_bytes(std::span(x))); !ok) return failed(ok);
    if (auto ok = program.write(w_, std::as_bytes(std::span(w))); !ok) return failed(ok);
    if (auto ok = program.run(false); !ok) return failed(ok);
    if (auto ok = program.read(y_, std::as_writable_bytes(std::span(y))); !ok) return failed(ok);
    return y;
  }

 private:
  Graph graph_;
  Var x_, w_, y_;
};

TEST(GpuMemory, WhatANodeNeedsLiesWhereNothingIsNeededAnyMore) {
  const auto device = test::open_gpu_device();
  if (!device) GTEST_SKIP() << "no GPU driver";
  gpu::Capabilities as = device->capabilities();
  as.kind = "discrete";  // whose products are done in parts
  device->assume(as);
  const auto gpu = make_gpu_backend(device), cpu = make_cpu_backend(make_crew(1));
  const PartsOfProduct parts;

  const std::uint64_t before = gpu->allocated_bytes();
  auto program = gpu->compile(parts.graph(), Precision::fast);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  constexpr std::uint64_t kActivation = PartsOfProduct::kRows * PartsOfProduct::kTerms * 4;
  // two inputs, three activations, and the parameters of commands
  EXPECT_LT(gpu->allocated_bytes() - before, 5 * kActivation + kActivation / 4);

  auto reference = cpu->compile(parts.graph(), Precision::reference);
  ASSERT_TRUE(reference.has_value()) << reference.error().message;
  const auto expected = parts.run(**reference), found = parts.run(**program);
  ASSERT_TRUE(expected.has_value() && found.has_value());
  EXPECT_EQ(*found, *expected);  // of whole numbers: exact in any order
}

}  // namespace
}  // namespace rullama
