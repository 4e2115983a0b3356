// Conversations to prompts, for the chat formats of Gemma 3 and Gemma 4.
//
// The formats are written in C++ here. The Jinja template that a file may carry (tokenizer.chat_template) is never
// executed or even parsed, so its size and content cannot do harm; it only tells that the model was made for chat.
//
// Gemma 4: <bos><|turn>ROLE\n TEXT <turn|>\n ... <|turn>model\n, a system turn with <|think|>\n if thinking is on,
// tools as <|tool>declaration:...<tool|>, calls as <|tool_call>call:NAME{...}<tool_call|>, results as
// <|tool_response>response:NAME{...}<tool_response|>. Gemma 3: <bos><start_of_turn>ROLE\n TEXT <end_of_turn>\n ...,
// no system role (its text opens the first user message) and no tools.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer.h"
#include "rullama/result.h"
#include "runtime/chat_value.h"

namespace rullama {

enum class Role : std::uint8_t { system, developer, user, assistant, tool };
[[nodiscard]] std::string_view role_name(Role role);

// A piece of a message's content. Media are placeholders here: the caller puts the embeddings where they stand.
struct ContentPart {
  enum class Kind : std::uint8_t { text, image, audio, video };
  Kind kind = Kind::text;
  std::string text;
};

struct ToolCall {
  std::string id;  // what a result's tool_call_id refers to; may be empty
  std::string name;
  Value arguments = Value::object();
};

struct ToolResult {
  std::string name;
  Value response;  // an object is shown as it is, anything else as {value:...}
};

struct Message {
  Role role = Role::user;
  std::vector<ContentPart> content;
  bool content_is_list = false;          // content came as a list of parts (Gemma 4's system turn spaces them out)
  std::string thinking;                  // of an assistant message; shown to the model only after the last user message
  std::vector<ToolCall> tool_calls;      // of an assistant message
  std::vector<ToolResult> tool_results;  // results kept with the calling message rather than in `tool` messages
  std::string tool_call_id, name;        // of a tool message: which call it answers
  Value result;                          // of a tool message whose content is neither text nor parts

  [[nodiscard]] static Message text(Role role, std::string text);
};

// What differs between models.
enum class ChatFormat : std::uint8_t {
  gemma3,
  gemma4_small,  // e2b, e4b
  gemma4_large,  // 12b, 26b-a4b, 31b: with thinking off the prompt closes an empty thought
};

// By the turn markers in the vocabulary (<|turn> or <start_of_turn>); nothing if it has neither. Gemma 4's small
// models are those with per-layer embeddings ({arch}.embedding_length_per_layer_input > 0).
[[nodiscard]] std::optional<ChatFormat> chat_format(const Tokenizer& tokenizer, bool has_per_layer_embeddings);

struct RenderOptions {
  ChatFormat format = ChatFormat::gemma4_small;
  bool think = false;                 // Gemma 3 has no such mode and ignores it
  bool keep_thinking = false;         // also show the thinking of earlier messages that called tools
  bool add_generation_prompt = true;  // open the model's turn at the end
  std::vector<Value> tools = {};      // {"type":"function","function":{...}} or the inner object alone
};

// A stretch of the prompt: one control token by its text, or plain text in which no control token counts.
struct Segment {
  std::string text;
  bool control = false;
  std::optional<std::size_t> answer = {};  // the assistant message of which it is what the model says
  friend bool operator==(const Segment&, const Segment&) = default;
};

struct RenderedPrompt {
  std::vector<Segment> segments;
  bool opens_thought = false;  // the prompt ends inside a thought, so the answer begins there

  [[nodiscard]] std::string text() const;  // all segments in a row, as a template would have it
};

// Errors: roles that the format cannot express, and where.
[[nodiscard]] Result<RenderedPrompt> render(const std::vector<Message>& messages, const RenderOptions& options);

// What a user typed stays text even if it reads like a marker. Plain text is encoded in runs from one control token to
// the next. An error names the control token that the vocabulary lacks.
[[nodiscard]] Result<std::vector<Token>> encode(const Tokenizer& tokenizer, std::span<const Segment> segments);
[[nodiscard]] inline Result<std::vector<Token>> encode(const Tokenizer& tokenizer, const RenderedPrompt& prompt) {
  return encode(tokenizer, prompt.segments);
}

// Without the white space that Python's str.strip removes at both ends (Unicode's, and the separators 1C to 1F).
[[nodiscard]] std::string_view trimmed(std::string_view text);

}  // namespace rullama
