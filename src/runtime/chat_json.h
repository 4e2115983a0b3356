// Messages and tools from the JSON that HuggingFace, OpenAI and Ollama use. Apart from chat.h, so that a build
// without a JSON library can leave it out.
#pragma once

#include <string_view>
#include <vector>

#include "rullama/result.h"
#include "runtime/chat.h"

namespace rullama {

struct Conversation {
  std::vector<Message> messages;
  std::vector<Value> tools;
};

// Either a list of messages or an object with "messages" and perhaps "tools". A message has "role", "content" (text,
// null or a list of parts of type text, image, image_url, audio, input_audio, video), and may have "reasoning" or
// "reasoning_content" or "thinking", "tool_calls", "tool_responses", "tool_call_id", "name". Arguments of calls may
// be an object or a string that holds one.
[[nodiscard]] Result<Conversation> conversation_from_json(std::string_view json);

[[nodiscard]] Result<std::vector<Value>> tools_from_json(std::string_view json);  // a list of tools

[[nodiscard]] Result<Value> value_from_json(std::string_view json);

// The answer's side: {"role":"assistant","content":...,"thinking":...,"tool_calls":[...]}; empty parts are left out.
[[nodiscard]] std::string message_to_json(const Message& message);

}  // namespace rullama
