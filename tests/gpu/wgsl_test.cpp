#include "gpu/wgsl.h"

#include <gtest/gtest.h>

namespace rullama::gpu {
namespace {

std::string written(std::string_view text, std::uint32_t n = 2) {
  return Wgsl("").constant("N", n).text(text).str().substr(Wgsl("").constant("N", n).str().size());
}

TEST(Wgsl, LoopsAreWrittenOut) {
  EXPECT_EQ(written("a\n  //@for i in N\n  x_$i = $iu;\n  //@end\nb"), "a\n  x_0 = 0u;\n  x_1 = 1u;\nb\n");
  EXPECT_EQ(written("//@for i in 3\n$i\n//@end"), "0\n1\n2\n");
}

TEST(Wgsl, LoopsStandInLoops) {
  EXPECT_EQ(written("//@for i in N\nfirst_$i\n//@for j in 2\n$i$j\n//@end\nlast_$i\n//@end\n//@for k in 1\n$k\n//@end"),
            "first_0\n00\n01\nlast_0\nfirst_1\n10\n11\nlast_1\n0\n");
}

TEST(Wgsl, NoRoundsLeaveNothing) { EXPECT_EQ(written("a\n//@for i in N\n$i\n//@end\nb", 0), "a\nb\n"); }

TEST(Wgsl, WhatIsNoLoopStays) {
  EXPECT_EQ(written("//@for i in UNKNOWN\n$i\n//@end"), "//@for i in UNKNOWN\n$i\n//@end\n");
  EXPECT_EQ(written("//@for i in N\n$i"), "//@for i in N\n$i\n");
  EXPECT_EQ(written("//@for i\n$i\n//@end"), "//@for i\n$i\n//@end\n");
}

}  // namespace
}  // namespace rullama::gpu
