#include "runtime/stop.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace rullama {
namespace {

struct Outcome {
  std::string text;
  bool stopped;
  bool operator==(const Outcome&) const = default;
};
void PrintTo(const Outcome& o, std::ostream* out) { *out << '\'' << o.text << "' stopped " << o.stopped; }

// The text in pieces of `size` characters (not bytes).
Outcome run(const std::vector<std::string>& stops, std::string_view text, std::size_t size) {
  StopMatcher matcher(stops);
  std::string out;
  while (!text.empty()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < size && length < text.size(); i++) length += utf8::valid_length(text.substr(length));
    const std::string delta = matcher.push(text.substr(0, length));
    EXPECT_TRUE(utf8::valid(delta));
    out += delta;
    text.remove_prefix(length);
  }
  return {out + matcher.finish(), matcher.stopped()};
}

TEST(StopMatcher, FindsTheFirstHoweverTheTextArrives) {
  const struct {
    std::vector<std::string> stops;
    std::string text;
    Outcome expected;
  } cases[] = {
      {{"END"}, "some ENDless END", {"some ", true}},
      {{"END"}, "EN", {"EN", false}},
      {{"aab"}, "aaab", {"a", true}},
      {{"abab", "bb"}, "abaabbab", {"abaa", true}},
      {{"xyz", "y"}, "axyq", {"ax", true}},
      {{"\n\nUser:"}, "hi\n\nUse\n\nUser: x", {"hi\n\nUse", true}},
      {{"\U0001FAE9"}, "a\U0001FAE9\U00020BB7", {"a", true}},
      {{"\U0001FAE9\U00020BB7!"}, "a\U0001FAE9\U00020BB7?", {"a\U0001FAE9\U00020BB7?", false}},
      {{"", "x"}, "ax", {"a", true}},
      {{}, "anything", {"anything", false}},
  };
  for (const auto& c : cases)
    for (const std::size_t size : {1, 2, 3, 100})
      EXPECT_EQ(run(c.stops, c.text, size), c.expected) << c.text << ' ' << size;
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"<end>"});
  EXPECT_EQ(matcher.push("a<en"), "a");
  EXPECT_EQ(matcher.push("e"), "<ene");
  EXPECT_EQ(matcher.push("<"), "");
  EXPECT_EQ(matcher.push("end>tail"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace rullama
