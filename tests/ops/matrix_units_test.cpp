// The op table's rows for matrix units, on a device without them.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/native/crew.h"
#include "ops/cpu_backend.h"
#include "ops/gpu_backend.h"
#include "ops/matrix_emulation.h"
#include "ops/op_table.h"
#include "support/gpu_device.h"

namespace rullama {
namespace {

class MatrixUnits : public testing::Test {
 protected:
  // Runs the rows of the table that `chosen` picks; each has to use a kernel with matrices.
  template <class Chosen>
  void check(std::size_t at_least, Chosen chosen) {
    const auto device = test::open_gpu_device();
    if (!device) GTEST_SKIP() << "no GPU driver";
    bool used = false;
    device->assume(with_matrix_units(device->capabilities()), [&used](const std::string& wgsl) {
      std::string text = without_matrix_units(wgsl);
      used = used || text != wgsl;
      return text;
    });
    const auto cpu = make_cpu_backend(make_crew(1)), gpu = make_gpu_backend(device);
    std::size_t count = 0;
    for (const OpCase& c : op_cases()) {
      if (c.use == CaseUse::bench || !chosen(c)) continue;
      SCOPED_TRACE(c.shape);
      used = false;  // asked for at each use, for keys are checked
      auto expected = run_case(c, *cpu, Precision::reference, false);
      auto found = run_case(c, *gpu, Precision::fast, false);
      ASSERT_TRUE(expected.has_value()) << expected.error().message;
      ASSERT_TRUE(found.has_value()) << found.error().message;
      EXPECT_EQ(compare_case(c, *expected, *found, Precision::fast), "");
      EXPECT_TRUE(used) << "kernels without matrices were chosen";
      count++;
    }
    EXPECT_GE(count, at_least);
  }
};

TEST_F(MatrixUnits, Attention) {
  check(10, [](const OpCase& c) {
    const Shape& q = c.inputs[0].desc.shape;
    const Shape& k = c.inputs[1].desc.shape;
    return c.op.ends_with("attention") && c.format == "F16" && c.inputs[0].name == "q" && q[2] >= 256 &&
           q[0] * q[1] / k[1] >= 32;
  });
}

// All on one device, so that each has to have keys of its own. A few formats stand for all: what differs between them
// is decoded as in products by tiles, and this driver takes seconds to compile each kernel.
TEST_F(MatrixUnits, Products) {
  check(15, [](const OpCase& c) {
    if (c.inputs.size() < 2 || !c.inputs[1].outside) return false;
    const Shape &x = c.inputs[0].desc.shape, &w = c.inputs[1].desc.shape;
    if (c.op == "gated_matmul") return x[0] >= 32;
    if (c.op == "expert_matmul" || c.op == "expert_gated_matmul") {
      const Shape& ids = c.inputs[2].desc.shape;
      return ids[0] >= 32 && ids.elements() / w[0] >= 9 && w[1] >= 32 && w[2] % 4 == 0;
    }
    const bool plain = c.op == "matmul" || c.op == "matmul_transposed",
               some = c.format == "Q4_K" || c.format == "Q5_0" || c.format == "Q8_0" || c.format == "F16";
    return plain && some && c.inputs.size() == 2 && x[0] >= 70 && x[0] < 300 && std::min(w[0], w[1]) >= 64;
  });
}

}  // namespace
}  // namespace rullama
