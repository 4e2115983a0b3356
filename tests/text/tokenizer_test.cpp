#include "formats/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "base/utf8.h"
#include "text/text_support.h"

namespace rullama {
namespace {

using test::first_byte;
using test::first_new;
using test::tokenizer_of;
using test::vocabulary_with;
using Ids = std::vector<Token>;

// Ids by name for vocabularies of this file.
class Names {
 public:
  explicit Names(const Tokenizer& t) : t_(t) {}
  Ids operator()(std::initializer_list<std::string_view> texts) const {
    Ids ids;
    for (const auto text : texts) {
      Token id = no_token;
      for (Token i = 0; i < t_.size(); i++)
        if (t_.text(i) == text) {
          id = i;
          break;
        }
      EXPECT_NE(id, no_token) << "no token " << text;
      ids.push_back(id);
    }
    return ids;
  }

 private:
  const Tokenizer& t_;
};

Vocabulary letters(const std::vector<std::string>& merges, std::vector<test::NewToken> more = {}) {
  std::vector<test::NewToken> tokens = std::move(more);
  for (const char* c : {"a", "b", "c", "d", "\u2581", "\n"}) tokens.push_back({c});
  float score = -1;
  std::vector<std::string> known;
  for (const std::string& m : merges) {
    std::string joined = m;
    joined.erase(joined.find(' '), 1);
    if (std::ranges::find(known, joined) == known.end()) {
      known.push_back(joined);
      tokens.push_back({joined, TokenType::normal, score--});
    }
  }
  return vocabulary_with(tokens, merges);
}

// Both rules on the same vocabulary: by ranks, and by scores.
std::vector<Tokenizer> both_rules(const std::vector<std::string>& merges, std::vector<test::NewToken> more = {}) {
  std::vector<Tokenizer> all;
  all.push_back(tokenizer_of(letters(merges, more)));
  Vocabulary scored = letters(merges, more);
  scored.merges = {};
  all.push_back(tokenizer_of(std::move(scored)));
  return all;
}

TEST(Tokenizer, JoinsTheBestPairFirstAndTheLeftmostOfEquals) {
  for (const Tokenizer& t : both_rules({"a b", "b c", "ab c", "a a"})) {
    const Names n(t);
    EXPECT_EQ(t.encode("abc"), n({"abc"}));
    EXPECT_EQ(t.encode("bcab"), n({"bc", "ab"}));
    EXPECT_EQ(t.encode("aaa"), n({"aa", "a"})) << "leftmost first";
    EXPECT_EQ(t.encode("aab"), n({"a", "ab"})) << "a b ranks above a a";
    EXPECT_EQ(t.encode("d"), n({"d"}));
    EXPECT_EQ(t.encode(""), Ids());
  }
}

TEST(Tokenizer, SpacesBecomeVisibleAndNothingIsStrippedOrAdded) {
  for (const Tokenizer& t : both_rules({"\u2581 a", "\u2581 \u2581"})) {
    const Names n(t);
    EXPECT_EQ(t.encode("a"), n({"a"}));
    EXPECT_EQ(t.encode(" a"), n({"\u2581a"}));
    EXPECT_EQ(t.encode("  a "), n({"\u2581", "\u2581a", "\u2581"}));
    EXPECT_EQ(t.encode("   "), n({"\u2581\u2581", "\u2581"}));
    EXPECT_EQ(t.decode(t.encode("  a ")), "  a ");
    EXPECT_EQ(t.decode(t.encode("\u2581"
                                "a")),
              " a")
        << "a literal U+2581 reads as a space";
  }
}

TEST(Tokenizer, UnknownCharactersBecomeBytes) {
  for (const Tokenizer& t : both_rules({"a b"})) {
    EXPECT_EQ(t.encode("\u00e9"), (Ids{first_byte + 0xc3, first_byte + 0xa9}));
    EXPECT_EQ(t.encode("a\xff"), (Ids{t.encode("a")[0], first_byte + 0xff}));
    EXPECT_EQ(t.decode(t.encode("x\u00e9\U0001F600y")), "x\u00e9\U0001F600y");
  }
}

TEST(Tokenizer, EveryByteStringComesBack) {
  std::mt19937 random(7);
  for (const Tokenizer& t : both_rules({"a b", "ab c", "\u2581 a", "a a", "aa aa", "\n \n"})) {
    for (int round = 0; round < 300; round++) {
      std::string text(random() % 40, '\0');
      for (char& c : text) c = random() % 3 ? "abcd \n"[random() % 6] : static_cast<char>(random());
      std::string bytes;
      for (const Token id : t.encode(text, {Markup::none})) bytes += t.bytes(id);
      ASSERT_EQ(bytes, text);
    }
  }
}

TEST(Tokenizer, WithoutByteTokensTheUnknownTokenStandsIn) {
  Vocabulary v;
  for (const char* name : {"<unk>", "a"}) v.tokens.add(name);
  v.types = {TokenType::unknown, TokenType::normal};
  v.scores = {0, 0};
  v.unknown = 0;
  EXPECT_EQ(tokenizer_of(std::move(v)).encode("ab"), (Ids{1, 0}));
}

std::vector<test::NewToken> markers() {
  return {
      {"<|turn>", TokenType::control},  {"<turn|>", TokenType::control},   {"<|tool_call>", TokenType::user_defined},
      {"<b>", TokenType::user_defined}, {"\n\n", TokenType::user_defined}, {"\n\n\n", TokenType::user_defined},
      {"  ", TokenType::user_defined}};
}

TEST(Tokenizer, MarkersAreCutOutLongestFirst) {
  for (const Tokenizer& t : both_rules({"a b"}, markers())) {
    const Names n(t);
    EXPECT_EQ(t.encode("a\n\n\n\n\nb"), n({"a", "\n\n\n", "\n\n", "b"}));
    EXPECT_EQ(t.encode("a   b"), n({"a", "  ", "\u2581", "b"})) << "stored with real spaces";
    EXPECT_EQ(t.encode("a<b>b"), n({"a", "<b>", "b"})) << "ab may not join across";
  }
}

TEST(Tokenizer, ControlTokensCountOnlyInTrustedText) {
  for (const Tokenizer& t : both_rules({"a b"}, markers())) {
    const Names n(t);
    const std::string text = "<|turn>a<|tool_call>\n\n";
    EXPECT_EQ(t.encode(text, {Markup::all}), n({"<|turn>", "a", "<|tool_call>", "\n\n"}));
    const Ids visible = t.encode(text, {Markup::visible});
    EXPECT_EQ(std::ranges::count(visible, n({"<|turn>"})[0]), 0);
    EXPECT_EQ(std::ranges::count(visible, n({"<|tool_call>"})[0]), 1);
    const Ids typed = t.encode(text, {Markup::none});
    EXPECT_EQ(std::ranges::count(typed, n({"<|tool_call>"})[0]), 0);
    EXPECT_EQ(std::ranges::count(typed, n({"\n\n"})[0]), 1);
    for (const auto& ids : {visible, typed}) EXPECT_EQ(t.decode(ids, true), text);
  }
}

TEST(Tokenizer, ControlTokensNeverComeOutOfMerges) {
  Vocabulary v = letters({"a b"}, {{"abc", TokenType::control}, {"c", TokenType::control}});
  v.merges.add("ab c");
  const Tokenizer by_rank = tokenizer_of(std::move(v));
  Vocabulary scored = letters({"a b"}, {{"abc", TokenType::control, 5}});
  scored.merges = {};
  const Tokenizer by_score = tokenizer_of(std::move(scored));
  for (const Tokenizer* t : {&by_rank, &by_score})
    for (const Token id : t->encode("abc")) EXPECT_NE(t->type(id), TokenType::control) << t->text(id);
}

TEST(Tokenizer, ExactlyOneBos) {
  for (const Tokenizer& t : both_rules({"a b"})) {
    const Names n(t);
    EXPECT_EQ(t.encode("ab", {Markup::visible, true}), n({"<bos>", "ab"}));
    EXPECT_EQ(t.encode("<bos>ab", {Markup::all, true}), n({"<bos>", "ab"}));
    EXPECT_EQ(t.encode("", {Markup::all, true}), n({"<bos>"}));
    EXPECT_EQ(t.encode("<bos>ab", {Markup::visible, true}).front(), 2u);
    EXPECT_GT(t.encode("<bos>ab", {Markup::visible, true}).size(), 2u) << "typed, so it stays text";
  }
}

TEST(Tokenizer, EndsOfGeneration) {
  Vocabulary v = vocabulary_with({{"<turn|>", TokenType::control},
                                  {"<|tool_response>", TokenType::user_defined},
                                  {"<end_of_turn>"},  // an ordinary token of that text ends nothing
                                  {"<stop>", TokenType::control}});
  v.end_of_generation = {first_new + 3};
  const Tokenizer t = tokenizer_of(std::move(v));
  EXPECT_EQ(Ids(t.end_of_generation().begin(), t.end_of_generation().end()),
            (Ids{1, first_new, first_new + 1, first_new + 3}));
  EXPECT_TRUE(t.ends_generation(1));
  EXPECT_FALSE(t.ends_generation(first_new + 2));
}

TEST(Tokenizer, AMegabyteOfOneLetterIsOneWord) {  // with a quadratic merge this would take hours
  std::vector<std::string> merges;
  for (std::string half = "a"; half.size() <= 512; half += half) merges.push_back(half + " " + half);
  for (const Tokenizer& t : both_rules(merges)) EXPECT_EQ(t.encode(std::string(1 << 20, 'a')).size(), 1024u);
}

// ---- streaming

std::string stream(const Tokenizer& t, const Ids& ids) {
  StreamDecoder decoder(t);
  std::string all;
  for (const Token id : ids) {
    const std::string delta = decoder.push(id);
    EXPECT_TRUE(utf8::valid(delta));
    all += delta;
  }
  return all + decoder.finish();
}

Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(first_byte + static_cast<unsigned char>(c));
  return ids;
}

TEST(StreamDecoder, HoldsBackHalfCharacters) {
  const Tokenizer t = tokenizer_of(letters({"a b"}));
  StreamDecoder decoder(t);
  const Ids emoji = bytes_of("\U0001F600");
  for (int i = 0; i < 3; i++) EXPECT_EQ(decoder.push(emoji[static_cast<std::size_t>(i)]), "");
  EXPECT_EQ(decoder.push(emoji[3]), "\U0001F600");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, EqualsTheTextDecodedAtOnce) {
  const Tokenizer t = tokenizer_of(letters({"a b"}));
  std::mt19937 random(3);
  for (int round = 0; round < 2000; round++) {
    Ids ids;
    for (std::size_t n = random() % 12; n > 0; n--) {
      const Ids next = random() % 2 ? bytes_of("\U0001FAE9") : Ids{static_cast<Token>(random() % (first_new + 8))};
      ids.insert(ids.end(), next.begin(), next.begin() + static_cast<std::ptrdiff_t>(random() % next.size() + 1));
    }
    ASSERT_EQ(stream(t, ids), t.decode(ids));
  }
}

TEST(StreamDecoder, ACutTailIsOneReplacementCharacter) {
  const Tokenizer t = tokenizer_of(letters({"a b"}));
  Ids ids = t.encode("a\U0001F600");
  ids.pop_back();
  EXPECT_EQ(stream(t, ids), "a\ufffd");
  EXPECT_EQ(stream(t, bytes_of("\x80")), "\ufffd");
  EXPECT_EQ(stream(t, bytes_of("\xf0\x9f"
                               "a")),
            "\ufffd"
            "a");
}

TEST(StreamDecoder, HidesControlTokensUnlessAsked) {
  const Tokenizer t = tokenizer_of(letters({"a b"}, markers()));
  const Ids ids = t.encode("<|turn>a<|tool_call>", {Markup::all});
  EXPECT_EQ(t.decode(ids), "a<|tool_call>");
  EXPECT_EQ(t.decode(ids, true), "<|turn>a<|tool_call>");
  EXPECT_EQ(t.decode(Ids{999999}), "");
}

// ---- vocabularies that cannot be right

std::string message_of(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  return tokenizer ? "" : tokenizer.error().message;
}

TEST(BadVocabulary, NamesTheKeyAndTheEntry) {
  struct Case {
    const char* key;
    const char* detail;
    std::function<void(Vocabulary&)> damage;
  };
  const Case cases[] = {
      {"tokenizer.ggml.tokens", "empty", [](Vocabulary& v) { v = {}; }},
      {"tokenizer.ggml.token_type", "270", [](Vocabulary& v) { v.types.pop_back(); }},
      {"tokenizer.ggml.scores", "270", [](Vocabulary& v) { v.scores.pop_back(); }},
      {"tokenizer.ggml.scores", "261", [](Vocabulary& v) { v.scores[261] = std::nanf(""); }},
      {"tokenizer.ggml.merges", "scores", [](Vocabulary& v) { v.scores.clear(), v.merges = {}; }},
      {"tokenizer.ggml.bos_token_id", "270", [](Vocabulary& v) { v.bos = 270; }},
      {"tokenizer.ggml.eos_token_id", "4294967295", [](Vocabulary& v) { v.eos = 0xffffffff; }},
      {"tokenizer.ggml.unknown_token_id", "270", [](Vocabulary& v) { v.unknown = 270; }},
      {"tokenizer.ggml.padding_token_id", "270", [](Vocabulary& v) { v.padding = 270; }},
      {"tokenizer.ggml.eos_token_ids", "999", [](Vocabulary& v) { v.end_of_generation = {1, 999}; }},
      {"tokenizer.ggml.suppress_tokens", "270", [](Vocabulary& v) { v.suppressed = {270}; }},
      {"tokenizer.ggml.tokens", "1048576",
       [](Vocabulary& v) {
         v.tokens.add(std::string(1 << 20, 'x'));
         v.types.push_back(TokenType::normal);
         v.scores.push_back(0);
       }},
      {"tokenizer.ggml.tokens", "byte", [](Vocabulary& v) { v.types[261] = TokenType::byte; }},
      {"tokenizer.ggml.tokens", "byte 65",
       [](Vocabulary& v) { v.types[4 + 65] = TokenType::normal, v.unknown.reset(); }},
      {"tokenizer.ggml.merges", "'xyz'", [](Vocabulary& v) { v.merges.add("xyz a"); }},
      {"tokenizer.ggml.merges", "'xyz'", [](Vocabulary& v) { v.merges.add("a xyz"); }},
      {"tokenizer.ggml.merges", "'ba'", [](Vocabulary& v) { v.merges.add("b a"); }},
      {"tokenizer.ggml.merges", "entry 3", [](Vocabulary& v) { v.merges.add("ab"); }},
      {"tokenizer.ggml.merges", "entry 3", [](Vocabulary& v) { v.merges.add(""); }},
      // An empty side would make a merge that yields its own other side: a cycle.
      {"tokenizer.ggml.merges", "entry 3", [](Vocabulary& v) { v.merges.add("a "); }},
      {"tokenizer.ggml.merges", "' '", [](Vocabulary& v) { v.merges.add("  a"); }},
  };
  const Vocabulary good = letters({"a b", "b c", "ab c"}, {});
  ASSERT_EQ(message_of(good), "");
  for (const Case& c : cases) {
    Vocabulary v = good;
    while (v.tokens.size() > 0 && v.tokens.size() < 270) {
      v.tokens.add("filler" + std::to_string(v.tokens.size()));
      v.types.push_back(TokenType::normal);
      v.scores.push_back(-50);
    }
    c.damage(v);
    const std::string message = message_of(std::move(v));
    EXPECT_NE(message.find(c.key), std::string::npos) << c.key << ": " << message;
    EXPECT_NE(message.find(c.detail), std::string::npos) << c.detail << ": " << message;
  }
}

}  // namespace
}  // namespace rullama
