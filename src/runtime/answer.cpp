#include "runtime/answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rullama {
namespace {

constexpr std::string_view white_space = " \t\n\r\f\v";

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

void Answer::append(Answer&& more) {
  thinking += more.thinking;
  content += more.content;
  std::ranges::move(more.calls, std::back_inserter(calls));
  std::ranges::move(more.malformed_calls, std::back_inserter(malformed_calls));
}

AnswerParser::AnswerParser(ChatFormat format, bool starts_in_thought)
    : markup_(format != ChatFormat::gemma3), state_(starts_in_thought ? State::thought : State::content) {}

Answer AnswerParser::push(std::string_view text) {
  if (!markup_) return {.thinking = {}, .content = std::string(text), .calls = {}, .malformed_calls = {}};
  unsplit_ += text;
  split(false);
  return std::exchange(out_, {});
}

Answer AnswerParser::finish() {
  split(true);
  while (state_ == State::call) {
    const bool whole = doubtful_end_ == std::string::npos || parse_tool_call(held_).complete;
    const std::string call = held_.substr(0, whole ? std::string::npos : doubtful_end_);
    if (!whole) unsplit_ = held_.substr(doubtful_end_ + marker_texts[static_cast<int>(Marker::close_call)].size());
    end_call(call);
    split(true);
  }
  if (state_ == State::content) out_.content += space_;
  if (state_ == State::thought) out_.thinking += space_;
  space_.clear();
  return std::exchange(out_, {});
}

// Takes unsplit_ apart into text and markers; what may be the beginning of a marker stays unless it is the `last`.
void AnswerParser::split(bool last) {
  const std::string input = std::exchange(unsplit_, {});
  std::string_view rest = input;
  while (!rest.empty()) {
    const std::size_t bracket = std::min(rest.find('<'), rest.size());
    if (bracket > 0) on_text(rest.substr(0, bracket));
    rest.remove_prefix(bracket);
    if (rest.empty()) break;

    const auto found = std::ranges::find_if(marker_texts, [&](std::string_view m) { return rest.starts_with(m); });
    if (found != std::end(marker_texts)) {
      rest.remove_prefix(found->size());
      on_marker(static_cast<Marker>(found - std::begin(marker_texts)));
    } else if (!last && std::ranges::any_of(marker_texts, [&](std::string_view m) { return m.starts_with(rest); })) {
      unsplit_ = rest;
      break;
    } else {
      on_text(rest.substr(0, 1));
      rest.remove_prefix(1);
    }
  }
}

// Trailing white space waits in space_ until text follows it.
void AnswerParser::write(std::string& to, std::string_view text) {
  if (skip_space_) {
    text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
    if (text.empty()) return;
    skip_space_ = after_call_ = false;
  }
  const std::size_t end = text.find_last_not_of(white_space) + 1;  // 0 if there is only white space
  if (end > 0) {
    to += std::exchange(space_, {});
    to += text.substr(0, end);
  }
  space_ += text.substr(end);
}

void AnswerParser::on_text(std::string_view text) {
  switch (state_) {
    case State::content: write(out_.content, text); break;
    case State::thought: write(out_.thinking, text); break;
    case State::call: held_ += text; break;
    case State::channel_name: {
      const auto end = std::ranges::find_if_not(text, is_name_character);
      held_.append(text.begin(), end);
      if (end == text.end()) break;
      text.remove_prefix(static_cast<std::size_t>(end - text.begin()));
      const std::string name = std::exchange(held_, {});
      begin(State::thought);
      if (text.front() == '\n')
        text.remove_prefix(1);
      else
        write(out_.thinking, name);  // not a name but the thought itself
      write(out_.thinking, text);
    }
  }
}

void AnswerParser::begin(State state) {
  state_ = state;
  space_.clear();
  held_.clear();
  doubtful_end_ = std::string::npos;
  skip_space_ = after_call_ = false;
}

void AnswerParser::on_marker(Marker marker) {
  if (state_ == State::call) return on_marker_in_call(marker);
  if (state_ == State::content) {
    if (marker == Marker::open_thought) return begin(State::channel_name);
    if (marker == Marker::open_call) return begin(State::call);
    if (after_call_ && (marker == Marker::close_call || marker == Marker::open_result)) return;
  } else if (marker == Marker::close_thought) {
    begin(State::content);
    skip_space_ = true;
    return;
  }
  const std::string_view text = marker_texts[static_cast<int>(marker)];
  if (state_ == State::channel_name) {
    const std::string name = std::exchange(held_, {});
    begin(State::thought);
    write(out_.thinking, name);
  }
  on_text(text);
}

void AnswerParser::on_marker_in_call(Marker marker) {
  const bool may_end = marker != Marker::open_thought && marker != Marker::close_thought;
  if (may_end && parse_tool_call(held_).complete) {
    end_call(std::string(held_));
    if (marker == Marker::open_call) begin(State::call);
    return;
  }
  if (marker == Marker::close_call && doubtful_end_ == std::string::npos) doubtful_end_ = held_.size();
  held_ += marker_texts[static_cast<int>(marker)];
}

void AnswerParser::end_call(std::string_view text) {
  ParsedCall parsed = parse_tool_call(text);
  if (parsed.has_name)
    out_.calls.push_back(std::move(parsed.call));
  else if (text.find_first_not_of(white_space) != std::string_view::npos)
    out_.malformed_calls.emplace_back(text);
  begin(State::content);
  skip_space_ = after_call_ = true;
}

}  // namespace rullama
