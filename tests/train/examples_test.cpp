// Examples out of JSON lines: which tokens, and which of them are learnt.
#include "train/examples.h"

#include "runtime/load.h"
#include "support/model.h"
#include "train/trainer.h"

namespace rullama::test {
namespace {

constexpr Token kNo = TrainBatch::kNoTarget;

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

struct Case {
  explicit Case(const std::string& model)
      : file(*read_model_file(*open_mapped(data_path("models/" + model + ".gguf")))) {
    options.format = chat_format(file.tokenizer, model.find("e2b") != std::string::npos);
  }
  Result<Dataset> read(std::string_view jsonl) const {
    return examples_from_jsonl(jsonl, "data.jsonl", file.tokenizer, options);
  }
  Example only(std::string_view jsonl) const {
    auto data = read(jsonl);
    EXPECT_TRUE(data) << data.error().message;
    if (!data) return {};
    EXPECT_EQ(data->examples.size(), 1u);
    return data->examples.at(0);
  }
  // The text with what is learnt between [ and ].
  std::string marked(const Example& e) const {
    EXPECT_EQ(e.tokens.size(), e.labels.size());
    std::string text;
    std::vector<Token> run;
    const auto flush = [&](bool learnt) {
      if (run.empty()) return;
      const std::string piece = file.tokenizer.decode(run, true);
      text += learnt ? "[" + piece + "]" : piece;
      run.clear();
    };
    for (std::size_t i = 0; i < e.tokens.size(); i++) {
      const bool learnt = e.labels[i] != kNo;
      EXPECT_TRUE(!learnt || e.labels[i] == e.tokens[i]) << "token " << i;
      if (i > 0 && learnt != (e.labels[i - 1] != kNo)) flush(!learnt);
      run.push_back(e.tokens[i]);
      if (i + 1 == e.tokens.size()) flush(learnt);
    }
    return text;
  }

  ModelFile file;
  ExampleOptions options;
};

TEST(Examples, AnAnswerOfGemma3) {
  const Case c("g3-270m.q8_0");
  EXPECT_EQ(c.marked(c.only(R"({"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"two"}]})")),
            "<bos><start_of_turn>user\none<end_of_turn>\n<start_of_turn>model\n[two<end_of_turn>\n]");
}

TEST(Examples, SeveralTurnsAreOneExampleWhereEveryPromptIsABeginningOfIt) {
  const Case c("g3-270m.q8_0");
  EXPECT_EQ(c.marked(c.only(one_line(R"({"messages":[{"role":"system","content":"be"},{"role":"user","content":"one"},
                            {"role":"assistant","content":"two"},{"role":"user","content":"three"},
                            {"role":"assistant","content":"four"}]})"))),
            "<bos><start_of_turn>user\nbe\n\none<end_of_turn>\n<start_of_turn>model\n[two<end_of_turn>\n]"
            "<start_of_turn>user\nthree<end_of_turn>\n<start_of_turn>model\n[four<end_of_turn>\n]");
}

const std::string kTwoTurns = one_line(
    R"({"messages":[{"role":"user","content":"one"},{"role":"assistant","content":"two"},
        {"role":"user","content":"three"},{"role":"assistant","content":"four"}]})");

// With thinking off, the large models see an empty thought before the answer they are about to give, but none before
// those they have given.
TEST(Examples, AnAnswerComesAfterThePromptThatAChatWouldGive) {
  const Case c("g4-26b.q8_0");
  const auto data = c.read(kTwoTurns);
  ASSERT_TRUE(data) << data.error().message;
  ASSERT_EQ(data->examples.size(), 2u);
  EXPECT_EQ(c.marked(data->examples[0]),
            "<bos><|turn>user\none<turn|>\n<|turn>model\n<|channel>thought\n<channel|>[two<turn|>\n]");
  EXPECT_EQ(c.marked(data->examples[1]),
            "<bos><|turn>user\none<turn|>\n<|turn>model\ntwo<turn|>\n<|turn>user\nthree<turn|>\n<|turn>model\n"
            "<|channel>thought\n<channel|>[four<turn|>\n]");
  const Case small("g4-e2b.q4_0");
  EXPECT_EQ(small.marked(small.only(kTwoTurns)),
            "<bos><|turn>user\none<turn|>\n<|turn>model\n[two<turn|>\n]<|turn>user\nthree<turn|>\n<|turn>model\n"
            "[four<turn|>\n]");
}

TEST(Examples, ThoughtsAndCallsAreLearntAndResultsAreNot) {
  const Case c("g4-e2b.q4_0");
  const auto data = c.read(one_line(
      R"({"messages":[{"role":"user","content":"sum"},
          {"role":"assistant","content":"","thinking":"add","tool_calls":[{"id":"1","function":{"name":"f","arguments":{}}}]},
          {"role":"tool","tool_call_id":"1","content":"3"},{"role":"assistant","content":"three"}]})"));
  ASSERT_TRUE(data) << data.error().message;
  std::string all;
  for (const Example& e : data->examples) all += c.marked(e) + "\n";
  EXPECT_NE(all.find("[<|channel>thought\nadd\n<channel|><|tool_call>call:f{}<tool_call|><|tool_response>]"),
            std::string::npos)
      << all;
  EXPECT_EQ(all.find("[response"), std::string::npos) << all;
  EXPECT_NE(all.find("<tool_response|>[three<turn|>\n]"), std::string::npos) << all;
}

TEST(Examples, CompletionsTextsAndIds) {
  Case c("g3-270m.q8_0");
  EXPECT_EQ(c.marked(c.only(R"({"prompt":"Q: one","completion":" two"})")), "<bos>Q: one[ two]");
  EXPECT_EQ(c.marked(c.only(R"({"text":"one two"})")), "<bos>[one two]");
  c.options.end_texts = true;  // this file's end is that of a turn
  EXPECT_EQ(c.marked(c.only(R"({"prompt":"Q: one","completion":" two"})")), "<bos>Q: one[ two<end_of_turn>]");
  c.options.prompts_too = true;
  EXPECT_EQ(c.marked(c.only(R"({"prompt":"Q: one","completion":" two"})")), "<bos>[Q: one two<end_of_turn>]");
  const Example ids = c.only(R"({"input_ids":[2,5,6,7],"labels":[-100,-100,6,9]})");
  EXPECT_EQ(ids.tokens, (std::vector<Token>{2, 5, 6, 7}));
  EXPECT_EQ(ids.labels, (std::vector<Token>{kNo, kNo, 6, 9}));
  EXPECT_EQ(ids.targets(), 2u);
  const Example padded = c.only(R"({"input_ids":[0,0,2,5,6],"attention_mask":[0,0,1,1,1]})");
  EXPECT_EQ(padded.tokens, (std::vector<Token>{2, 5, 6}));
  EXPECT_EQ(padded.labels, padded.tokens);
  EXPECT_EQ(ids.prompt().size(), 2u);
}

TEST(Examples, WhatIsTooLongIsCutAndCounted) {
  Case c("g3-270m.q8_0");
  c.options.max_length = 6;
  auto data = c.read(
      "{\"input_ids\":[2,5,6,7,8,9,10,11],\"labels\":[-100,-100,6,7,8,9,10,11]}\n"
      "\n"
      "{\"input_ids\":[2,5,6,7,8,9,10,11],\"labels\":[-100,-100,-100,-100,-100,-100,10,11]}\r\n"
      "{\"input_ids\":[2,5,6,7,8,9]}");
  ASSERT_TRUE(data) << data.error().message;
  EXPECT_EQ(data->rows, 3u);
  EXPECT_EQ(data->truncated, 2u);
  EXPECT_EQ(data->without_target, 1u);
  ASSERT_EQ(data->examples.size(), 2u);
  EXPECT_EQ(data->examples[0].tokens.size(), 6u);
  // a text goes on in the next example
  c.options.max_length = 3;
  const auto text = c.read(R"({"text":"aaaaaaa"})");
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->truncated, 0u);
  std::string all;
  for (const Example& e : text->examples) {
    EXPECT_LE(e.tokens.size(), 3u);
    EXPECT_EQ(e.tokens[0], c.file.tokenizer.bos());
    all += c.file.tokenizer.decode(std::span(e.tokens).subspan(1));
  }
  EXPECT_EQ(all, "aaaaaaa");
  data = c.read(R"({"input_ids":[2,5,6,7],"labels":[-100,-100,-100,7]})");
  ASSERT_FALSE(data);
  EXPECT_NE(data.error().message.find("--max-length"), std::string::npos) << data.error().message;
}

// Each answer of it is an example, since the template drops earlier thoughts; together they must not take the square of
// its length.
TEST(Examples, ALongConversationTakesMemoryOfWhatIsKept) {
  Case c("g4-e2b.q4_0");
  c.options.max_length = 64;
  std::vector<Message> messages;
  for (int i = 0; i < 200; i++) {
    messages.push_back(Message::text(Role::user, "one two three"));
    messages.push_back(Message::text(Role::assistant, "four"));
    messages.back().thinking = "five six";
  }
  const auto made = examples_of(messages, {}, c.file.tokenizer, c.options);
  ASSERT_TRUE(made) << made.error().message;
  ASSERT_EQ(made->size(), 200u);
  for (const Example& e : *made) EXPECT_LE(e.tokens.capacity() + e.labels.capacity(), 2 * 65u);
}

TEST(Examples, AWrongLineIsNamed) {
  const Case c("g3-270m.q8_0");
  const std::string good = R"({"text":"fine"})";
  for (const auto& [line, says] : std::vector<std::pair<std::string, std::string>>{
           {"{", "JSON"},
           {"[1]", "list"},
           {"7", "object"},
           {"{}", "\"messages\""},
           {R"({"text":7})", "text"},
           {R"({"text":""})", "empty"},
           {R"({"prompt":"x"})", "completion"},
           {R"({"prompt":"x","completion":""})", "empty"},
           {R"({"messages":[]})", "assistant"},
           {R"({"messages":[{"role":"user","content":"x"}]})", "assistant"},
           {R"({"messages":[{"role":"sailor","content":"x"}]})", "sailor"},
           {R"({"messages":[{"role":"assistant","content":"x"}]})", "'user'"},
           {R"({"messages":{}})", "list"},
           {R"({"input_ids":[]})", "input_ids"},
           {R"({"input_ids":[1,2],"labels":[1]})", "labels"},
           {R"({"input_ids":[1,2],"attention_mask":[1]})", "attention_mask"},
           {R"({"input_ids":[1,99999999]})", "99999999"},
           {R"({"input_ids":[1,-1]})", "-1"},
           {R"({"input_ids":[1,2.5]})", "2.5"},
           {R"({"input_ids":[1,2],"labels":[-100,-100]})", "-100"},
           {"{\"text\":\"\xff\"}", "UTF-8"},
           {"\xff\xfe{\0", "UTF-8"},
           {R"({"text":"fine" "more"})", ": not valid JSON: column 21; each line"},
           {R"({"text":"fine","more":)" + std::string(2'000'000, '['),
            ": JSON is nested more than 100 levels deep; each line"},
           {R"({"input_ids":[1]})", "nothing to predict"},
           {R"({"messages":[{"role":"user","content":[{"type":"image"}]},{"role":"assistant","content":"x"}]})",
            "message 1 has images"},
           {R"({"messages":[{"role":"user","content":"x","images":["aGk="]},{"role":"assistant","content":"x"}]})",
            "message 1 has images"},
       }) {
    const auto data = c.read(good + "\n\n" + line + "\n" + good);
    ASSERT_FALSE(data) << line.substr(0, 200);
    EXPECT_TRUE(data.error().message.starts_with("data.jsonl:3: ")) << data.error().message;
    EXPECT_NE(data.error().message.find(says), std::string::npos)
        << line.substr(0, 200) << " gives: " << data.error().message;
  }
  EXPECT_FALSE(c.read(""));
  EXPECT_FALSE(c.read("\n \n"));
}

}  // namespace
}  // namespace rullama::test
