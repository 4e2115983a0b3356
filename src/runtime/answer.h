// Reading what a chat model says: the text of its answer is cut into thoughts, content and tool calls while it
// arrives. However the text is split over the calls, the result is the same.
//
// Gemma 4 thinks as <|channel>thought\n ... <channel|> and calls tools as <|tool_call>call:NAME{key:value}<tool_call|>
// with bare keys and strings between <|"|>. Models often get the quoting wrong (single or double quotes, backticks, a
// mark missing at one end); such calls are repaired rather than lost or shown to the user.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/chat.h"

namespace rullama {

struct Answer {
  std::string thinking, content;
  std::vector<ToolCall> calls;
  std::vector<std::string> malformed_calls;  // text between call markers in which not even a name was found

  void append(Answer&& more);
};

class AnswerParser {
 public:
  // Gemma 3 has no markup: all is content. `starts_in_thought` as RenderedPrompt::opens_thought says.
  explicit AnswerParser(ChatFormat format, bool starts_in_thought = false);

  // What `text` adds. Held back: the possible beginning of a marker, white space that may precede one, unfinished
  // calls.
  [[nodiscard]] Answer push(std::string_view text);
  // The rest, when generation has ended (wherever that was).
  [[nodiscard]] Answer finish();

 private:
  enum class State : std::uint8_t { content, channel_name, thought, call };
  enum class Marker : std::uint8_t { open_thought, close_thought, open_call, close_call, open_result };
  static constexpr std::string_view marker_texts[] = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>",
                                                      "<|tool_response>"};

  void split(bool last);
  void on_text(std::string_view text);
  void on_marker(Marker marker);
  void on_marker_in_call(Marker marker);
  void write(std::string& to, std::string_view text);
  void begin(State state);
  void end_call(std::string_view text);

  bool markup_;
  State state_ = State::content;
  bool skip_space_ = false;                       // white space that follows a closing marker
  bool after_call_ = false;                       // nothing but white space since a call
  std::string unsplit_;                           // input that may be the beginning of a marker
  std::string space_;                             // white space that counts only if text follows
  std::string held_;                              // the channel's name or the call so far
  std::size_t doubtful_end_ = std::string::npos;  // where held_ has a <tool_call|> that seems to lie within a string
  Answer out_;
};

// One call as the model writes it: "call:NAME{key:value,...}". `complete`: every brace and string is closed.
struct ParsedCall {
  ToolCall call;
  bool has_name = false, complete = false;
};
[[nodiscard]] ParsedCall parse_tool_call(std::string_view text);

}  // namespace rullama
