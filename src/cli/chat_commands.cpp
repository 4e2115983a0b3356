#include "cli/chat_commands.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/text.h"
#include "cli/output.h"
#include "runtime/sampler.h"

namespace rullama::cli {

namespace {

constexpr std::string_view kHelp =
    "  /set NAME VALUE     a setting of /show parameters (temperature, seed, stop, ...)\n"
    "  /set system TEXT    the same as /system TEXT\n"
    "  /set think          let the model think; /set nothink: not\n"
    "  /set verbose        speed after each answer; /set quiet: not\n"
    "  /set nohistory      don't keep what is typed; /set history: do\n"
    "  /system TEXT        the system prompt from now on (empty: none)\n"
    "  /show [info|parameters|system|messages]\n"
    "  /clear              begin a new conversation\n"
    "  /bye                leave (also /exit, Ctrl-D)\n"
    "  \"\"\"                 begins and ends a text of several lines\n"
    "  Ctrl-C              stops an answer and keeps the chat\n";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The first word of `text`, which is left with the rest.
std::string_view next_word(std::string_view& text) {
  text = trim(text);
  const auto end = std::min(text.find_first_of(" \t"), text.size());
  const std::string_view word = text.substr(0, end);
  text = trim(text.substr(end));
  return word;
}

// "..." or """...""" around a value is not part of it.
std::string_view unquoted(std::string_view text) {
  for (const std::string_view mark : {"\"\"\"", "\""})
    if (text.size() >= 2 * mark.size() && text.starts_with(mark) && text.ends_with(mark))
      return text.substr(mark.size(), text.size() - 2 * mark.size());
  return text;
}

template <class T>
bool parse(std::string_view text, T& to) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  to = value;
  return true;
}

struct FloatSetting {
  std::string_view name;
  float Sampling::* field;
};
struct CountSetting {
  std::string_view name;
  std::uint32_t Sampling::* field;
};
constexpr std::array kFloats = {
    FloatSetting{"temperature", &Sampling::temperature},
    FloatSetting{"top_p", &Sampling::top_p},
    FloatSetting{"min_p", &Sampling::min_p},
    FloatSetting{"repeat_penalty", &Sampling::repeat_penalty},
    FloatSetting{"presence_penalty", &Sampling::presence_penalty},
    FloatSetting{"frequency_penalty", &Sampling::frequency_penalty},
};
constexpr std::array kCounts = {CountSetting{"top_k", &Sampling::top_k},
                                CountSetting{"repeat_last_n", &Sampling::repeat_last_n}};

void say(std::string_view text) { put_now(cat(text, "\n")); }

// False if there is no such setting.
bool set_parameter(std::string_view name, std::string_view value, ChatState& c) {
  Sampling changed = c.how.sampling;
  bool known = false, well_formed = false;
  for (const auto& [setting, field] : kFloats)
    if (setting == name) known = true, well_formed = parse(value, changed.*field);
  for (const auto& [setting, field] : kCounts)
    if (setting == name) known = true, well_formed = parse(value, changed.*field);
  if (name == "seed") {
    known = true, well_formed = parse(value, changed.seed);
    if (well_formed) c.random_seed = false;
  } else if (name == "num_predict") {
    std::int64_t most = 0;
    known = true, well_formed = parse(value, most);
    if (well_formed)
      c.how.max_tokens = most < 0 ? UINT32_MAX : static_cast<std::uint32_t>(std::min<std::int64_t>(most, UINT32_MAX));
  } else if (name == "stop") {
    known = well_formed = true;
    if (value.empty())
      c.how.stop.clear();
    else
      c.how.stop.emplace_back(unquoted(value));
  } else if (name == "num_ctx") {
    say("The context is made when the model is loaded: leave, and start with -c.");
    return true;
  }
  if (!known) return false;
  if (!well_formed) {
    say(cat(quote(value), " is no value for ", name, "."));
    return true;
  }
  if (const auto ok = check(changed); !ok) {
    say(cat("That cannot be: ", ok.error().message, "."));
    return true;
  }
  c.how.sampling = changed;
  return true;
}

void set_system(std::string_view text, ChatState& c) {
  if (!c.chat) return say("This file is no chat model: there is no system prompt.");
  c.system = unquoted(text);
}

void set(std::string_view rest, ChatState& c) {
  std::string_view name = next_word(rest);
  if (name == "parameter") name = next_word(rest);
  if (name == "system") return set_system(rest, c);
  if (name == "think" || name == "nothink") {
    if (name == "think" && (!c.chat || c.loaded->format == ChatFormat::gemma3))
      return say("This model has no thinking mode.");
    c.think = name == "think";
  } else if (name == "verbose" || name == "quiet") {
    c.verbose = name == "verbose";
  } else if (name == "history" || name == "nohistory") {
    c.keep_history = name == "history";
  } else if (name.empty() || !set_parameter(name, rest, c)) {
    say(name.empty() ? "/set needs the name of a setting; /help lists them."
                     : cat("There is no setting ", quote(name), "; /help lists them."));
  }
}

void show_parameters(const ChatState& c) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, field] : kFloats) rows.push_back({std::string(name), cat(c.how.sampling.*field)});
  for (const auto& [name, field] : kCounts) rows.push_back({std::string(name), cat(c.how.sampling.*field)});
  rows.push_back({"seed", c.random_seed ? "random" : cat(c.how.sampling.seed)});
  rows.push_back({"num_predict", c.how.max_tokens == UINT32_MAX ? "-1" : cat(c.how.max_tokens)});
  for (const std::string& stop : c.how.stop) rows.push_back({"stop", quote(stop)});
  put_table(rows);
}

void show_info(const ChatState& c) {
  const ModelInfo& info = c.loaded->model.info();
  put_table({{"model", c.loaded->stored.name},
             {"architecture", info.architecture},
             {"parameters", cat(fixed(static_cast<double>(info.parameters) / 1e6, 0), " million")},
             {"weights", bytes_text(static_cast<double>(info.weight_bytes))},
             {"device", info.device},
             {"context", cat(c.session->tokens().size(), " of ", c.session->context(), " positions used")}});
}

void show(std::string_view what, const ChatState& c) {
  if (what.empty() || what == "info") {
    show_info(c);
  } else if (what == "parameters") {
    show_parameters(c);
  } else if (what == "system") {
    say(c.system.empty() ? "There is no system prompt." : without_controls(c.system));
  } else if (what == "messages") {
    for (const Message& m : c.messages)
      for (const ContentPart& part : m.content) say(cat("[", role_name(m.role), "] ", without_controls(part.text)));
  } else {
    say("/show knows info, parameters, system and messages.");
  }
}

}  // namespace

CommandResult obey(std::string_view line, ChatState& c) {
  const std::string_view command = next_word(line);
  if (command == "/bye" || command == "/exit" || command == "/quit") return CommandResult::leave;
  if (command == "/help" || command == "/?") {
    put_now(kHelp);
  } else if (command == "/clear") {
    c.messages.clear();
    say("A new conversation.");
  } else if (command == "/system") {
    set_system(line, c);
  } else if (command == "/set") {
    set(line, c);
  } else if (command == "/show") {
    show(line, c);
  } else {
    say(cat("There is no command ", quote(command), "; /help lists them."));
  }
  return CommandResult::done;
}

}  // namespace rullama::cli
