#include "base/text.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace rullama {
namespace {

using namespace std::string_literals;

TEST(Text, CatJoinsTextsAndNumbers) {
  const std::string part = "b";
  EXPECT_EQ(cat("a", part, 'c', 1, -2, std::uint64_t{1} << 63, 0.5f, 1e300, true, std::string_view("d")),
            "abc1-292233720368547758080.51e+300trued");
  EXPECT_EQ(cat(), "");
}

TEST(Text, List) {
  const std::array<int, 3> values{2, 3, 4};
  EXPECT_EQ(list(std::span(values)), "[2, 3, 4]");
  EXPECT_EQ(list(std::span<const int>()), "[]");
}

TEST(Text, QuotedShowsWhatATerminalMustNotGet) {
  EXPECT_EQ(quote("plain"), "'plain'");
  EXPECT_EQ(quote("\x1b[2J\n"), "'\\x1b[2J\\x0a'");
  EXPECT_EQ(rullama::quote("a\0b"s), "'a\\x00b'");
  EXPECT_EQ(quote("\xff\xe2\x82"), "'\\xff\\xe2\\x82'");
  EXPECT_EQ(quote("\xe2\x82\xac"), "'\xe2\x82\xac'");
  EXPECT_EQ(quote(""), "''");
}

TEST(Text, QuotedCutsBetweenCharacters) {
  std::string euros;
  for (int i = 0; i < 100; i++) euros += "\xe2\x82\xac";
  const std::string found = rullama::quote(euros, 20);
  EXPECT_LE(found.size(), 30u);
  EXPECT_TRUE(found.ends_with("...'")) << found;
  EXPECT_TRUE(utf8::valid(found)) << found;
}

TEST(Text, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1000), "1.0 kB");
  EXPECT_EQ(bytes_text(253'100'000), "253.1 MB");
  EXPECT_EQ(bytes_text(4.2e12), "4.2 TB");
}

}  // namespace
}  // namespace rullama
