// Which kernel a device gets: pure functions of its capabilities.
#include <gtest/gtest.h>

#include "ops/matmul/product_kernels.h"

namespace rullama {
namespace {

TEST(KernelChoice, ForwardProducts) {
  using Kernel = ForwardKernel;
  struct Case {
    const char* device;
    std::string kind;
    bool subgroups;
    std::uint32_t least, most;  // lanes
    std::uint64_t m;            // rows of x
    Kernel expected;
  };
  const Case cases[] = {
      {"a GPU, one token", "discrete", true, 32, 32, 1, Kernel::rows},
      {"a GPU, as many as are done row by row", "discrete", true, 32, 32, 8, Kernel::rows},
      {"a GPU, more", "integrated", false, 0, 0, 9, Kernel::tiles},
      {"a CPU driver, one token", "cpu", true, 8, 8, 1, Kernel::rows},
      {"a CPU driver, a few", "cpu", true, 8, 8, 4, Kernel::rows},
      {"a CPU driver, more", "cpu", true, 8, 8, 5, Kernel::broadcast},
      {"vectors of 4 floats", "cpu", true, 4, 4, 512, Kernel::broadcast},
      {"vectors of 16 floats", "cpu", true, 16, 16, 512, Kernel::broadcast},
      {"vectors longer than a batch", "cpu", true, 32, 32, 512, Kernel::rows},
      {"a CPU driver without subgroups", "cpu", false, 0, 0, 512, Kernel::rows},
      {"a CPU driver whose subgroups vary", "cpu", true, 4, 16, 512, Kernel::rows},
  };
  for (const Case& c : cases) {
    gpu::Capabilities caps;
    caps.kind = c.kind;
    caps.subgroups = c.subgroups;
    caps.subgroup_min = c.least;
    caps.subgroup_max = c.most;
    EXPECT_EQ(forward_kernel(caps, c.m), c.expected) << c.device << ", " << c.m << " rows";
  }
}

}  // namespace
}  // namespace rullama
