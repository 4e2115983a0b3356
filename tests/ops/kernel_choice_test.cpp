// Which kernel a device gets: pure functions of its capabilities.
#include <gtest/gtest.h>

#include "base/text.h"
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

// Whatever the device and the size: teams are whole parts of subgroups, rows have whole teams, and the threads are not
// too many.
TEST(KernelChoice, ShapesOfRowProducts) {
  for (const std::string kind : {"discrete", "integrated", "cpu"})
    for (const std::uint32_t subgroup : {0, 4, 8, 16, 32, 64, 128})
      for (const std::uint32_t most : {256, 384, 512, 768, 1024, 2048})
        for (const std::uint64_t n : {1, 128, 129, 256, 257, 2048, 6143, 6144, 8192, 16384, 65535, 65536, 262144})
          for (const std::uint64_t k : {1, 32, 64, 256, 257, 640, 1536, 2816, 4096, 4097, 8192, 21504})
            for (const std::uint64_t m : {1, 2, 3, 5, 8}) {
              gpu::Capabilities caps;
              caps.kind = kind;
              caps.subgroups = subgroup > 0;
              caps.subgroup_min = caps.subgroup_max = subgroup;
              caps.max_invocations = most;
              const RowsShape s = rows_shape(caps, n, k, m);
              const auto at = [&] {
                return cat(kind, ", lanes ", subgroup, " of ", most, ": ", m, " x ", n, " x ", k);
              };
              ASSERT_GT(s.lanes * s.teams * s.parts * s.rows * s.batch, 0u) << at();
              ASSERT_LE(s.lanes * s.teams, most) << at();
              ASSERT_EQ(s.teams % s.parts, 0u) << at() << ": " << s.parts << " parts of " << s.teams << " teams";
              ASSERT_LE(s.batch, 8u) << at();
              if (!s.subgroup) continue;
              ASSERT_EQ(s.subgroup, subgroup) << at();
              ASSERT_EQ(s.subgroup % s.lanes, 0u) << at() << ": teams of " << s.lanes;
              ASSERT_EQ(s.lanes * s.teams % s.subgroup, 0u) << at() << ": " << s.teams << " teams of " << s.lanes;
            }
}

}  // namespace
}  // namespace rullama
