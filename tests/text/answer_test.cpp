#include "runtime/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace rullama {
namespace {

std::string summary(const Answer& a) {
  std::string s = "thinking '" + a.thinking + "' content '" + a.content + "'";
  for (const ToolCall& c : a.calls) s += " call " + c.name + json_text(c.arguments);
  for (const std::string& m : a.malformed_calls) s += " malformed '" + m + "'";
  return s;
}

std::string parse(std::string_view text, std::size_t piece, bool starts_in_thought = false) {
  AnswerParser parser(ChatFormat::gemma4_small, starts_in_thought);
  Answer answer;
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size())))
    answer.append(parser.push(text.substr(0, piece)));
  answer.append(parser.finish());
  return summary(answer);
}

void expect(std::string_view text, const std::string& expected, bool starts_in_thought = false) {
  for (const std::size_t piece : {std::size_t{1} << 20, std::size_t{3}, std::size_t{1}})
    EXPECT_EQ(parse(text, piece, starts_in_thought), expected) << text << " in pieces of " << piece;
}

std::string content(const std::string& text) { return "thinking '' content '" + text + "'"; }
std::string call(const std::string& text) { return content("") + " call " + text; }

TEST(Answer, PlainTextIsContent) {
  expect("Hello, world!\n", content("Hello, world!\n"));
  expect("", content(""));
  expect("  a < b <| c <|chan <tool_call", content("  a < b <| c <|chan <tool_call"));
  expect("a<channel|>b<tool_call|>", content("a<channel|>b<tool_call|>"));
}

TEST(Answer, Gemma3HasNoMarkup) {
  AnswerParser parser(ChatFormat::gemma3);
  EXPECT_EQ(parser.push("<|channel>x <").content, "<|channel>x <");
  EXPECT_EQ(summary(parser.finish()), content(""));
}

TEST(Answer, ThoughtsAreTakenOut) {
  expect("<|channel>thought\nlong\n\nstory \n<channel|>\n The answer. ",
         "thinking 'long\n\nstory' content 'The answer. '");
  expect(" \n<|channel>thought\n<channel|>A", content("A"));
  expect("<|channel>thought<channel|>A", content("A"));
  expect("a \n<|channel>thought\nb<channel|> c", "thinking 'b' content 'ac'");
  expect("<|channel>No name here<channel|>A", "thinking 'No name here' content 'A'");
  expect("<|channel>thought\nit goes <on and <|tool_call> on", "thinking 'it goes <on and <|tool_call> on' content ''");
  expect("so\n<channel|>\n\nA", "thinking 'so' content 'A'", true);
}

TEST(Answer, CallsAreParsed) {
  expect("Let me see. <|tool_call>call:f{a:1,b:-2.5e3,c:true,d:null,e:[1,<|\"|>x<|\"|>,{y:false}],g:{}}<tool_call|>",
         content("Let me see.") + R"( call f{"a":1,"b":-2.5e3,"c":true,"d":null,"e":[1,"x",{"y":false}],"g":{}})");
  expect("<|tool_call>call:now{}<tool_call|><tool_call|>\n<|tool_response>", call("now{}"));
  expect("<|tool_call>call:f{a:1}<tool_call|> <tool_call|>\nand text", content("and text") + R"( call f{"a":1})");
  expect("<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{b:2}<tool_call|>", call(R"(f{"a":1} call g{"b":2})"));
  expect("<|channel>thought\nhm\n<channel|><|tool_call>call:f{}<tool_call|>", "thinking 'hm' content '' call f{}");
}

TEST(Answer, StringsAreRaw) {
  expect("<|tool_call>call:w{s:<|\"|>} , ]: {\"q\" 'x' `y` \\n <tool_call|> <|channel>\n<|\"|>,n:1}<tool_call|>ok",
         content("ok") + R"( call w{"s":"} , ]: {\"q\" 'x' `y` \\n <tool_call|> <|channel>\n","n":1})");
}

TEST(Answer, OddQuotingIsRepaired) {
  expect(
      "<|tool_call>call:grep{include:<|\"|>*.py<|\"|>,output_mode:<|\"|>content<|\"|>,path:<|\"|>/data/x<|\"|>,"
      "pattern:':\\s*\\w+'<|\"|>}<tool_call|>",
      call(R"(grep{"include":"*.py","output_mode":"content","path":"/data/x","pattern":":\\s*\\w+"})"));
  expect(
      "<|tool_call>call:write{content:<|\"|># T\n\nuse \"q\" and {braces}, `x`\n<|\"|>,path:<|\"|>C:\\tmp\\a.md<|\"|>}"
      "<tool_call|>",
      call(R"(write{"content":"# T\n\nuse \"q\" and {braces}, `x`\n","path":"C:\\tmp\\a.md"})"));
  expect("<|tool_call>call:f{s:<|\"|>unterminated}<tool_call|>", call(R"(f{"s":"unterminated"})"));
  expect("<|tool_call>call:f{a:[{s:<|\"|>x}]}<tool_call|>", call(R"(f{"a":[{"s":"x"}]})"));
  expect("<|tool_call>call:f{a:'it's',b:`b`,c:\"x \\\"y\\\"\",d:\"C:\\dir\"}<tool_call|>",
         call(R"(f{"a":"it's","b":"b","c":"x \"y\"","d":"C:\\dir"})"));
  expect("<|tool_call>call:f{city:Oslo,\"k\":bare words,<|\"|>q<|\"|>:1}<tool_call|>",
         call(R"(f{"city":"Oslo","k":"bare words","q":1})"));
  expect("<|tool_call>call:f{v:007,w:1.,x:-}<tool_call|>", call(R"(f{"v":"007","w":"1.","x":"-"})"));
}

TEST(Answer, CallsThatAreCutShort) {
  expect("<|tool_call>call:f{a:1,s:<|\"|>some te", call(R"(f{"a":1,"s":"some te"})"));
  expect("<|tool_call>call:f{a:[1,2", call(R"(f{"a":[1,2]})"));
  expect("<|tool_call>call:f", call("f{}"));
  expect("<|tool_call>call:f{a:1}", call(R"(f{"a":1})"));
  expect("<|tool_call>call:f{a:1}<|tool_call>call:g{}<tool_call|>", call(R"(f{"a":1} call g{})"));
  expect("<|tool_call>call:f{a:1}<|tool_response>", call(R"(f{"a":1})"));
  expect("<|tool_call>call:f{s:<|\"|>open}<tool_call|>\nText <|tool_call>call:g{}<tool_call|>",
         content("Text") + R"( call f{"s":"open"} call g{})");
}

TEST(Answer, ACallWithoutANameIsReported) {
  expect("<|tool_call>what now?<tool_call|>x", content("x") + " malformed 'what now?'");
  expect("<|tool_call><tool_call|>x", content("x"));
}

TEST(Answer, HostileInputEndsAndIsIndependentOfPieces) {
  const std::string_view parts[] = {"<|channel>",
                                    "<channel|>",
                                    "<|tool_call>",
                                    "<tool_call|>",
                                    "<|tool_response>",
                                    "<|\"|>",
                                    "call:f{",
                                    "a:",
                                    "{",
                                    "[",
                                    "}",
                                    "]",
                                    ",",
                                    "'",
                                    "\"",
                                    "`",
                                    "\\",
                                    " ",
                                    "\n",
                                    "thought\n",
                                    "<",
                                    "<|",
                                    "x",
                                    "1"};
  std::mt19937 random(11);
  for (int round = 0; round < 3000; round++) {
    std::string text;
    for (auto n = random() % 30; n > 0; n--) text += parts[random() % std::size(parts)];
    const std::string whole = parse(text, text.size() + 1);
    ASSERT_EQ(parse(text, 1), whole) << text;
    ASSERT_EQ(parse(text, 1 + random() % 7), whole) << text;
  }
  std::string deep = "<|tool_call>call:f{a:";
  for (int i = 0; i < 100000; i++) deep += i % 2 ? "[" : "{b:";
  parse(deep, 1 << 20);
}

}  // namespace
}  // namespace rullama
