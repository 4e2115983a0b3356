#include "base/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace rullama {
namespace {

std::string lists(std::size_t levels, const std::string& inside = "") {
  return std::string(levels, '[') + inside + std::string(levels, ']');
}

TEST(Json, NestsAsDeepAsTheLimitAndNoDeeper) {
  EXPECT_TRUE(parse_json(lists(kMostJsonLevels)));
  EXPECT_TRUE(parse_json(lists(kMostJsonLevels - 2, R"({"a":"]]][[[{{{"},[[]],[[]])")));
  std::string objects;
  for (int i = 0; i < kMostJsonLevels; i++) objects += R"({"a":)";
  for (const std::string& deep : {lists(kMostJsonLevels + 1), lists(kMostJsonLevels, "{}"), objects + "[1"}) {
    const auto read = parse_json(deep);
    ASSERT_FALSE(read) << deep;
    EXPECT_EQ(read.error().message, "JSON is nested more than 100 levels deep");
  }
}

TEST(Json, SiblingsAreNoLevels) {
  std::string flat = "[";
  for (int i = 0; i < 1000; i++) flat += "[],{},";
  EXPECT_TRUE(parse_json(flat + "[]]"));
}

TEST(Json, NestingBeyondMeasureIsRefusedAtOnce) {
  const std::string deep(50'000'000, '[');
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(parse_json(deep));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(Json, SaysWhereItIsNone) {
  for (const auto& [text, says] : {std::pair{"", "line 1, column 1"},
                                   {"[1,\n 2 3]", "line 2, column 4"},
                                   {"{} x", "line 1, column 4"},
                                   {"[1e999]", "line 1, column 6"}}) {
    const auto read = parse_json(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message, std::string("not valid JSON: ") + says) << text;
  }
}

}  // namespace
}  // namespace rullama
