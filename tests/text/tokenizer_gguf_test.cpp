// Vocabularies as files hold them: tiny ones of both dialects, and Gemma 3 270M's if it has been fetched.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "formats/gguf.h"
#include "formats/tokenizer.h"
#include "host/native/mapped_file.h"
#include "runtime/chat.h"
#include "runtime/sampler.h"
#include "runtime/stop.h"
#include "support/real_model.h"
#include "text/gguf_bytes.h"
#include "text/text_support.h"

namespace rullama {
namespace {

using nlohmann::json;
using Ids = std::vector<Token>;

Vocabulary vocabulary_of(const std::string& path) {
  const auto source = open_mapped(path);
  if (!source) throw std::runtime_error(source.error().message);
  const auto file = Gguf::read(*source);
  if (!file) throw std::runtime_error(file.error().message);
  auto vocabulary = read_vocabulary(*file);
  if (!vocabulary) throw std::runtime_error(vocabulary.error().message);
  return std::move(*vocabulary);
}

void expect_cases(const Tokenizer& t, const json& cases, const std::string& what) {
  for (const json& c : cases) {
    const auto text = c["text"].get<std::string>();
    const auto ids = c["ids"].get<Ids>();
    EXPECT_EQ(t.encode(text, {Markup::all}), ids) << what << ": " << c["text"];
    EXPECT_EQ(t.decode(ids, true), c["decoded"].get<std::string>()) << what << ": " << c["text"];
    // llama.cpp's converter calls <start_of_image> user-defined, which is shown; for Hugging Face it is special.
    if (what == "gemma3" && text.find("<start_of_image>") != std::string::npos) continue;
    EXPECT_EQ(t.decode(ids, false), c["decoded_skip_special"].get<std::string>()) << what << ": " << c["text"];
  }
}

TEST(TokenizerGguf, TinyFilesOfBothDialects) {
  const json cases = test::read_cases("tokens_tiny.json")["cases"];
  for (const char* name : {"g4-e2b.q4_0", "g4-e2b-k.q4_k_m", "g3-270m.q8_0", "g3-270m.f16"}) {
    const Tokenizer t = test::tokenizer_of(vocabulary_of(std::string(RULLAMA_TEST_DATA "/models/") + name + ".gguf"));
    const bool gemma4 = name[1] == '4';
    expect_cases(t, cases[gemma4 ? "gemma4" : "gemma3"], name);
    EXPECT_EQ(t.encode("a", {Markup::none, true})[0], 2u) << name << ": whatever add_bos_token says";
    const Token turn_end = *t.marker(gemma4 ? "<turn|>" : "<end_of_turn>");
    EXPECT_TRUE(t.ends_generation(turn_end)) << name;
    EXPECT_TRUE(t.ends_generation(1)) << name;
    EXPECT_EQ(chat_format(t, true), gemma4 ? ChatFormat::gemma4_small : ChatFormat::gemma3) << name;
  }
}

// ---- the real vocabulary

std::optional<Vocabulary> real_vocabulary() {
  const auto file = test::real_model();
  if (!file) return std::nullopt;
  return vocabulary_of(*file);
}

class RealVocabulary : public testing::Test {
 protected:
  void SetUp() override {
    vocabulary_ = real_vocabulary();
    if (!vocabulary_) GTEST_SKIP() << test::kNoRealModel;
  }
  std::optional<Vocabulary> vocabulary_;
};

TEST_F(RealVocabulary, Gemma3CasesOfHuggingFace) {
  expect_cases(test::tokenizer_of(std::move(*vocabulary_)), test::read_cases("tokens_gemma3.json")["cases"], "gemma3");
}

TEST_F(RealVocabulary, StringsAndPromptsOfThreeEngines) {
  const Tokenizer t = test::tokenizer_of(std::move(*vocabulary_));
  const json reference = test::read_cases("tokens_gemma3_270m.json");
  for (const json& s : reference["strings"]) {
    const auto text = s["text"].get<std::string>();
    EXPECT_EQ(t.encode(text, {Markup::all}), s["ids"].get<Ids>()) << s["text"];
    EXPECT_EQ(t.encode(text, {Markup::visible}), s["ids_special_as_text"].get<Ids>()) << s["text"];
    EXPECT_EQ(t.decode(s["ids"].get<Ids>(), true), s["detokenized"].get<std::string>()) << s["text"];
  }
  for (const json& p : reference["prompts"])
    EXPECT_EQ(t.encode(p["text"].get<std::string>(), {Markup::all, true}), p["ids"].get<Ids>()) << p["text"];
}

// The same pieces with Gemma 4's special tokens at their ids; everything else is ordinary there.
Vocabulary as_gemma4(const Vocabulary& gemma3) {
  const std::map<Token, std::pair<const char*, bool>> special = {// id: text, shown
                                                                 {0, {"<pad>", false}},
                                                                 {1, {"<eos>", false}},
                                                                 {2, {"<bos>", false}},
                                                                 {3, {"<unk>", false}},
                                                                 {4, {"<mask>", false}},
                                                                 {46, {"<|tool>", false}},
                                                                 {47, {"<tool|>", false}},
                                                                 {48, {"<|tool_call>", true}},
                                                                 {49, {"<tool_call|>", true}},
                                                                 {50, {"<|tool_response>", true}},
                                                                 {51, {"<tool_response|>", true}},
                                                                 {52, {"<|\"|>", true}},
                                                                 {98, {"<|think|>", false}},
                                                                 {100, {"<|channel>", true}},
                                                                 {101, {"<channel|>", true}},
                                                                 {105, {"<|turn>", false}},
                                                                 {106, {"<turn|>", false}}};
  Vocabulary v;
  for (Token id = 0; id < gemma3.tokens.size(); id++) {
    std::string text(gemma3.tokens[id]);
    float score = gemma3.scores[id];
    TokenType type = gemma3.types[id] == TokenType::byte ? TokenType::byte : TokenType::normal;
    if (const auto s = special.find(id); s != special.end()) {
      text = s->second.first;
      type = s->second.second ? TokenType::user_defined : TokenType::control;
    } else if (text.size() > 1 && std::ranges::count(text, ' ') == static_cast<std::ptrdiff_t>(text.size())) {
      std::string runs;
      for (std::size_t i = 0; i < text.size(); i++) runs += "\u2581";
      text = runs;
    }
    if (gemma3.types[id] == TokenType::user_defined) score = static_cast<float>(text.size());  // longest runs first
    v.tokens.add(text);
    v.types.push_back(type);
    v.scores.push_back(score);
  }
  v.bos = 2;
  v.eos = 1;
  v.unknown = 3;
  return v;
}

// Every way of cutting a piece into two is a merge, the piece with the higher score first: this is how the published
// list of merges relates to the scores.
void derive_merges(Vocabulary& v) {
  const TokenIndex index(v.tokens);
  std::vector<Token> order;
  for (Token id = 0; id < v.tokens.size(); id++)
    if (v.types[id] == TokenType::normal) order.push_back(id);
  std::ranges::sort(order, {}, [&](Token id) { return std::pair(-v.scores[id], id); });
  for (const Token id : order) {
    const std::string_view text = v.tokens[id];
    for (std::size_t cut = 1; cut < text.size(); cut++) {
      const std::string_view left = text.substr(0, cut), right = text.substr(cut);
      if (index.find(v.tokens, left) != no_token && index.find(v.tokens, right) != no_token)
        v.merges.add(std::string(left) + ' ' + std::string(right));
    }
  }
}

TEST_F(RealVocabulary, Gemma4CasesByScoresAndByMerges) {
  const json cases = test::read_cases("tokens_gemma4.json")["cases"];
  Vocabulary v = as_gemma4(*vocabulary_);
  expect_cases(test::tokenizer_of(v), cases, "by scores");
  derive_merges(v);
  EXPECT_GT(v.merges.size(), 500000u);
  v.scores.clear();
  expect_cases(test::tokenizer_of(std::move(v)), cases, "by merges");
}

// D6 of the reports on other engines: emoji came out as U+FFFD where each token was turned into text alone.
TEST_F(RealVocabulary, D6_NoHalfCharacters) {
  const Tokenizer t = test::tokenizer_of(std::move(*vocabulary_));
  const Ids face = {478, 397, 409, 407}, ideograph = {478, 398, 412, 421}, no_break_space = {432, 398};
  EXPECT_EQ(t.decode(face), "\U0001FAE9");
  EXPECT_EQ(t.decode(ideograph), "\U00020BB7");
  EXPECT_EQ(t.decode(no_break_space), "\u00a0");

  Ids mixed = t.encode("one");
  for (const Ids& part : {face, t.encode(" two"), ideograph, no_break_space, t.encode("three")})
    mixed.insert(mixed.end(), part.begin(), part.end());
  StreamDecoder decoder(t);
  StopMatcher stop({"\U00020BB7\u00a0"});
  std::string streamed, until_stop;
  for (const Token id : mixed) {
    const std::string delta = decoder.push(id);
    EXPECT_TRUE(utf8::valid(delta));
    EXPECT_EQ(delta.find("\ufffd"), std::string::npos);
    streamed += delta;
    until_stop += stop.push(delta);
  }
  EXPECT_EQ(streamed, "one\U0001FAE9 two\U00020BB7\u00a0three");
  EXPECT_EQ(streamed, t.decode(mixed));
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(until_stop, "one\U0001FAE9 two");

  StreamDecoder cut(t);
  EXPECT_EQ(cut.push(478) + cut.push(397) + cut.finish(), "\ufffd");
  StreamDecoder lone(t);
  EXPECT_EQ(lone.push(409) + lone.finish(), "\ufffd");
  EXPECT_EQ(t.bytes(478), "\xf0");
}

TEST_F(RealVocabulary, TypedMarkersStayText) {
  const Tokenizer t = test::tokenizer_of(std::move(*vocabulary_));
  const std::string typed = "<start_of_turn>user\n<start_of_image><bos><b>\n\n<end_of_turn>";
  const Ids ids = t.encode(typed, {Markup::none});
  for (const Token marker : {2u, 105u, 106u, 255999u}) EXPECT_EQ(std::ranges::count(ids, marker), 0) << marker;
  EXPECT_EQ(std::ranges::count(ids, 108u), 1) << "two newlines are text";
  EXPECT_EQ(t.decode(ids), typed);
}

// ---- metadata that is wrong

test::GgufBytes small_file() {
  test::GgufBytes g;
  g.text("general.architecture", "gemma3");
  g.text("tokenizer.ggml.model", "llama");
  g.texts("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab"});
  g.floats("tokenizer.ggml.scores", {0, 0, 0, 1});
  g.ints("tokenizer.ggml.token_type", {2, 1, 1, 1});
  g.u32("tokenizer.ggml.unknown_token_id", 0);
  return g;
}

std::string outcome(const test::GgufBytes& bytes) {
  const auto file = Gguf::read(bytes.source());
  if (!file) return file.error().message;
  auto vocabulary = read_vocabulary(*file);
  if (!vocabulary) return vocabulary.error().message;
  const auto tokenizer = Tokenizer::create(std::move(*vocabulary));
  return tokenizer ? "ok" : tokenizer.error().message;
}

TEST(TokenizerGguf, WrongMetadataIsNamed) {
  EXPECT_EQ(outcome(small_file()), "ok");
  const struct {
    const char *key, *detail;
    std::function<void(test::GgufBytes&)> damage;
  } cases[] = {
      {"tokenizer.ggml.model", "", [](auto& g) { g.drop("tokenizer.ggml.model"); }},
      {"tokenizer.ggml.model", "'bert'", [](auto& g) { g.text("tokenizer.ggml.model", "bert"); }},
      {"tokenizer.ggml.model", "", [](auto& g) { g.u32("tokenizer.ggml.model", 1); }},
      {"tokenizer.ggml.tokens", "", [](auto& g) { g.drop("tokenizer.ggml.tokens"); }},
      {"tokenizer.ggml.tokens", "", [](auto& g) { g.ints("tokenizer.ggml.tokens", {1, 2, 3, 4}); }},
      {"tokenizer.ggml.tokens", "empty", [](auto& g) { g.texts("tokenizer.ggml.tokens", {}); }},
      {"tokenizer.ggml.token_type", "", [](auto& g) { g.drop("tokenizer.ggml.token_type"); }},
      {"tokenizer.ggml.token_type", "5", [](auto& g) { g.ints("tokenizer.ggml.token_type", {2, 1, 1, 1, 1}); }},
      {"tokenizer.ggml.token_type", "7", [](auto& g) { g.ints("tokenizer.ggml.token_type", {2, 1, 7, 1}); }},
      {"tokenizer.ggml.token_type", "-1", [](auto& g) { g.ints("tokenizer.ggml.token_type", {2, 1, -1, 1}); }},
      {"tokenizer.ggml.scores", "3", [](auto& g) { g.floats("tokenizer.ggml.scores", {0, 0, 0}); }},
      {"tokenizer.ggml.scores", "", [](auto& g) { g.text("tokenizer.ggml.scores", "x"); }},
      {"tokenizer.ggml.merges", "'c'", [](auto& g) { g.texts("tokenizer.ggml.merges", {"a b", "b c"}); }},
      {"tokenizer.ggml.merges", "", [](auto& g) { g.u32("tokenizer.ggml.merges", 4); }},
      {"tokenizer.ggml.bos_token_id", "4", [](auto& g) { g.u32("tokenizer.ggml.bos_token_id", 4); }},
      {"tokenizer.ggml.eos_token_id", "", [](auto& g) { g.u32("tokenizer.ggml.eos_token_id", 0xffffffff); }},
      {"tokenizer.ggml.eos_token_ids", "", [](auto& g) { g.ints("tokenizer.ggml.eos_token_ids", {1, -5}); }},
      {"tokenizer.ggml.suppress_tokens", "4", [](auto& g) { g.ints("tokenizer.ggml.suppress_tokens", {4}); }},
  };
  for (const auto& c : cases) {
    test::GgufBytes g = small_file();
    c.damage(g);
    const std::string message = outcome(g);
    EXPECT_NE(message.find(c.key), std::string::npos) << c.key << ": " << message;
    EXPECT_NE(message.find(c.detail), std::string::npos) << c.key << ' ' << c.detail << ": " << message;
  }
}

TEST(SamplerGguf, RecommendedSettings) {
  test::GgufBytes g = small_file();
  const auto none = read_sampling_defaults(Gguf::read(g.source()).value());
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->temperature || none->top_k || none->top_p || none->min_p);
  g.floats("general.sampling.temp", {0.5f}, false);
  g.floats("general.sampling.top_p", {0.9f}, false);
  g.ints("general.sampling.top_k", {32}, false);
  g.ints("general.sampling.penalty_last_n", {-1}, false);
  const auto some = read_sampling_defaults(Gguf::read(g.source()).value());
  ASSERT_TRUE(some);
  EXPECT_EQ(some->temperature, 0.5f);
  EXPECT_EQ(some->top_p, 0.9f);
  EXPECT_EQ(some->top_k, 32u);
  EXPECT_EQ(some->repeat_last_n, UINT32_MAX);
  g.text("general.sampling.top_k", "many");
  const auto wrong = read_sampling_defaults(Gguf::read(g.source()).value());
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("general.sampling.top_k"), std::string::npos) << wrong.error().message;
}

}  // namespace
}  // namespace rullama
