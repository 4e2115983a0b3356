#include "base/utf8.h"

#include <gtest/gtest.h>

#include <optional>

namespace rullama {
namespace {

using namespace std::string_literals;

bool is_scalar(std::uint32_t c) { return c <= 0x10ffff && (c < 0xd800 || c > 0xdfff); }

TEST(Utf8, EveryCharacterComesBack) {
  for (std::uint32_t c = 0; c <= 0x10ffff; c++) {
    if (!is_scalar(c)) continue;
    std::string text;
    utf8::append(text, c);
    ASSERT_EQ(text.size(), c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u) << c;
    ASSERT_EQ(utf8::valid_length(text + "x"), text.size()) << c;
    ASSERT_EQ(utf8::decode(text), c);
    for (std::size_t n = 1; n < text.size(); n++) {
      ASSERT_EQ(utf8::valid_length(text.substr(0, n)), 0u) << c;
      ASSERT_TRUE(utf8::incomplete(text.substr(0, n))) << c;
    }
    ASSERT_FALSE(utf8::incomplete(text)) << c;
  }
}

// All texts of up to three bytes against the shortest definition: well formed means that a character encodes to it.
TEST(Utf8, NothingElseIsWellFormed) {
  std::size_t found = 0;
  for (std::uint32_t bytes = 0; bytes < 1u << 24; bytes += bytes & 0x8080 ? 1 : 0x101) {
    const std::string text = {static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8), static_cast<char>(bytes)};
    if (utf8::valid_length(text) != 3) continue;
    std::string again;
    utf8::append(again, utf8::decode(text));
    ASSERT_EQ(again, text);
    ASSERT_TRUE(is_scalar(utf8::decode(text)));
    found++;
  }
  EXPECT_EQ(found, 0x10000u - 0x800u - 0x800u) << "three bytes hold U+0800 to U+FFFF without the surrogates";
}

TEST(Utf8, IllFormed) {
  for (const std::string& text : {"\x80"s, "\xbf"s, "\xc0\x80"s, "\xc1\xbf"s, "\xe0\x9f\xbf"s, "\xed\xa0\x80"s,
                                  "\xf0\x8f\xbf\xbf"s, "\xf4\x90\x80\x80"s, "\xf5\x80\x80\x80"s, "\xff"s, "\xc3x"s}) {
    EXPECT_EQ(utf8::valid_length(text), 0u) << testing::PrintToString(text);
    EXPECT_FALSE(utf8::valid(text)) << testing::PrintToString(text);
    EXPECT_FALSE(utf8::incomplete(text)) << testing::PrintToString(text);
  }
  EXPECT_EQ(utf8::valid_length(""), 0u);
  EXPECT_FALSE(utf8::incomplete(""));
  EXPECT_TRUE(utf8::valid(""));
  EXPECT_TRUE(utf8::valid("a\0b"s));
}

// The table of the Unicode standard, section 3.9, "U+FFFD substitution of maximal subparts".
TEST(Utf8, RepairReplacesMaximalSubparts) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(utf8::repair("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64"),
            "a" + r + r + r + "b" + r + "c" + r + r + "d");
  EXPECT_EQ(utf8::repair("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(utf8::repair("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(utf8::repair("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), r + r + r + r + "A");
  EXPECT_EQ(utf8::repair("whole \xe2\x82\xac"), "whole \xe2\x82\xac");
}

}  // namespace
}  // namespace rullama
