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
    const auto cpu = make_cpu_backend(make_crew(1));
    std::size_t count = 0;
    for (const OpCase& c : op_cases()) {
      if (c.use == CaseUse::bench || !chosen(c)) continue;
      SCOPED_TRACE(c.shape);
      const auto device = test::open_gpu_device();
      if (!device) GTEST_SKIP() << "no GPU driver";
      bool used = false;
      device->assume(with_matrix_units(device->capabilities()), [&used](const std::string& wgsl) {
        std::string text = without_matrix_units(wgsl);
        used = used || text != wgsl;
        return text;
      });
      auto expected = run_case(c, *cpu, Precision::reference, false);
      auto found = run_case(c, *make_gpu_backend(device), Precision::fast, false);
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

TEST_F(MatrixUnits, Products) {
  check(16, [](const OpCase& c) {
    const bool transposed = c.op == "matmul_transposed";
    if ((c.op != "matmul" && !transposed) || c.inputs.size() != 2 || !c.inputs[1].outside) return false;
    const Shape &x = c.inputs[0].desc.shape, &w = c.inputs[1].desc.shape;
    return x[0] >= 70 && x[0] < 300 && std::min(w[0], w[1]) >= 64;
  });
}

TEST_F(MatrixUnits, GatedProducts) {
  check(4, [](const OpCase& c) { return c.op == "gated_matmul" && c.inputs[0].desc.shape[0] >= 32; });
}

TEST_F(MatrixUnits, Experts) {
  check(7, [](const OpCase& c) {
    if (c.op != "expert_matmul" && c.op != "expert_gated_matmul") return false;
    const Shape &w = c.inputs[1].desc.shape, &ids = c.inputs[2].desc.shape;
    return ids[0] >= 32 && ids.elements() / w[0] >= 9 && w[1] >= 32 && w[2] % 4 == 0;
  });
}

}  // namespace
}  // namespace rullama
