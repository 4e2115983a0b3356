// The commands of a chat: /help, /set and so on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/run.h"

namespace rullama::cli {

// What a conversation consists of, and what commands change.
struct ChatState {
  const LoadedModel* loaded = nullptr;
  const Session* session = nullptr;
  bool chat = false;  // else each entry is a text to be continued
  GenerateOptions how;
  std::string system;
  bool think = false, verbose = false, keep_history = true, random_seed = true;
  std::vector<Message> messages;  // without the system prompt
};

enum class CommandResult { done, leave };
// `line` begins with a slash.
[[nodiscard]] CommandResult obey(std::string_view line, ChatState& state);

}  // namespace rullama::cli
