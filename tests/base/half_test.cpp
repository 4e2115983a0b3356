#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rullama {
namespace {

// The value of a half by its definition (IEEE 754 binary16).
double half_value(std::uint32_t h) {
  const int exponent = static_cast<int>(h >> 10 & 0x1f), mantissa = static_cast<int>(h & 0x3ff);
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

bool is_nan(std::uint32_t h) { return (h & 0x7fff) > 0x7c00; }

TEST(Half, EveryValueIsExactAndComesBack) {
  for (std::uint32_t h = 0; h < 0x10000; h++) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(h));
    if (is_nan(h)) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << h;
      ASSERT_TRUE(is_nan(f32_to_f16(value))) << std::hex << h;
      continue;
    }
    if ((h & 0x7fff) == 0x7c00) {
      ASSERT_EQ(value, h & 0x8000 ? -INFINITY : INFINITY);
    } else {
      ASSERT_EQ(value, half_value(h)) << std::hex << h;
      ASSERT_EQ(std::signbit(value), (h & 0x8000) != 0) << std::hex << h;
    }
    ASSERT_EQ(f32_to_f16(value), h) << std::hex << h;
  }
}

// Between each two neighbours: below the middle down, above it up, at it to the even one.
TEST(Half, RoundsToNearestEven) {
  for (std::uint32_t h = 0; h < 0x7bff; h++) {
    const auto low = static_cast<float>(half_value(h)), high = static_cast<float>(half_value(h + 1));
    const float middle = low + (high - low) / 2;
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.f : 1.f;
      ASSERT_EQ(f32_to_f16(s * middle), sign | (h & 1 ? h + 1 : h)) << middle;
      ASSERT_EQ(f32_to_f16(s * std::nextafter(middle, low)), sign | h) << middle;
      ASSERT_EQ(f32_to_f16(s * std::nextafter(middle, high)), sign | (h + 1)) << middle;
    }
  }
}

TEST(Half, OverflowIsInfinity) {
  EXPECT_EQ(f32_to_f16(65504.f), 0x7bff);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.f, 0.f)), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-0.f), 0x8000);
}

TEST(BFloat, EveryValueComesBack) {
  for (std::uint32_t h = 0; h < 0x10000; h++) {
    const float value = bf16_to_f32(static_cast<std::uint16_t>(h));
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value)))) << std::hex << h;
    else
      ASSERT_EQ(f32_to_bf16(value), h) << std::hex << h;
  }
}

TEST(BFloat, RoundsToNearestEven) {
  const auto from = [](std::uint32_t bits) { return f32_to_bf16(std::bit_cast<float>(bits)); };
  EXPECT_EQ(from(0x3f808000), 0x3f80);  // a tie goes to the even one
  EXPECT_EQ(from(0x3f818000), 0x3f82);
  EXPECT_EQ(from(0x3f808001), 0x3f81);
  EXPECT_EQ(from(0x3f807fff), 0x3f80);
  EXPECT_EQ(from(0x7f7fffff), 0x7f80);  // beyond the largest: infinity
  EXPECT_TRUE(std::isnan(bf16_to_f32(from(0x7f800001)))) << "a NaN whose bits are all cut off stays one";
}

}  // namespace
}  // namespace rullama
