// A forgiving parser for the arguments of Gemma 4's tool calls.
#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "runtime/answer.h"

namespace rullama {
namespace {

constexpr std::string_view string_mark = "<|\"|>";
constexpr int deepest = 64;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_space(std::string_view s) {
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

// JSON's grammar of numbers.
bool is_number(std::string_view s) {
  const auto digits = [&] {
    std::size_t n = 0;
    while (n < s.size() && is_digit(s[n])) n++;
    s.remove_prefix(n);
    return n > 0;
  };
  if (s.starts_with('-')) s.remove_prefix(1);
  if (s.size() > 1 && s[0] == '0' && is_digit(s[1])) return false;
  if (!digits()) return false;
  if (s.starts_with('.')) {
    s.remove_prefix(1);
    if (!digits()) return false;
  }
  if (s.starts_with('e') || s.starts_with('E')) {
    s.remove_prefix(1);
    if (s.starts_with('-') || s.starts_with('+')) s.remove_prefix(1);
    if (!digits()) return false;
  }
  return s.empty();
}

std::optional<std::uint32_t> hex4(std::string_view s) {
  if (s.size() < 4) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : s.substr(0, 4)) {
    const char lower = static_cast<char>(c | 0x20);
    if (!is_digit(c) && (lower < 'a' || lower > 'f')) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
  }
  return value;
}

// The content of a JSON string, or nothing if an escape in it is none of JSON's (as in "C:\dir").
std::optional<std::string> unescaped(std::string_view s) {
  constexpr std::string_view names = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  std::string out;
  while (!s.empty()) {
    if (s[0] != '\\') {
      out += s[0];
      s.remove_prefix(1);
      continue;
    }
    if (s.size() < 2) return std::nullopt;
    if (s[1] != 'u') {
      const std::size_t which = names.find(s[1]);
      if (which == std::string_view::npos) return std::nullopt;
      out += meanings[which];
      s.remove_prefix(2);
      continue;
    }
    auto code = hex4(s.substr(2));
    if (!code) return std::nullopt;
    s.remove_prefix(6);
    if (*code >= 0xd800 && *code < 0xdc00 && s.starts_with("\\u")) {
      const auto low = hex4(s.substr(2));
      if (low && *low >= 0xdc00 && *low < 0xe000) {
        code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
        s.remove_prefix(6);
      }
    }
    utf8::append(out, *code >= 0xd800 && *code < 0xe000 ? 0xfffd : *code);
  }
  return out;
}

class ArgumentParser {
 public:
  explicit ArgumentParser(std::string_view text) : rest_(text) {}

  // The members up to the brace that closes the object; its opening brace has been read.
  Value object() {
    Value result = Value::object();
    depth_++;
    while (true) {
      skip_separators();
      if (rest_.empty() || depth_ > deepest) break;
      if (rest_.front() == '}' || rest_.front() == ']') {
        rest_.remove_prefix(1);
        depth_--;
        return result;
      }
      std::string name = key();
      if (!rest_.starts_with(':')) continue;  // a word that names nothing
      rest_.remove_prefix(1);
      result.set(std::move(name), value());
      skip_junk();
    }
    complete_ = false;
    return result;
  }

  [[nodiscard]] bool complete() const { return complete_; }

 private:
  Value array() {
    Value result = Value::array();
    depth_++;
    while (true) {
      skip_separators();
      if (rest_.empty() || depth_ > deepest) break;
      if (rest_.front() == ']' || rest_.front() == '}') {
        rest_.remove_prefix(1);
        depth_--;
        return result;
      }
      result.append(value());
      skip_junk();
    }
    complete_ = false;
    return result;
  }

  Value value() {
    skip_space();
    if (take(string_mark)) return Value::string(marked_string());
    if (take("{")) return object();
    if (take("[")) return array();
    if (!rest_.empty() && (rest_.front() == '"' || rest_.front() == '\'' || rest_.front() == '`'))
      if (auto text = quoted_string()) return Value::string(std::move(*text));
    return bare();
  }

  // Raw up to the closing mark. Without one it is all there is, but for the brackets that close what is open.
  std::string marked_string() {
    const std::size_t end = rest_.find(string_mark);
    std::string_view text = rest_.substr(0, end);
    if (end != std::string_view::npos) {
      rest_.remove_prefix(end + string_mark.size());
      return std::string(text);
    }
    complete_ = false;
    rest_ = {};
    for (int open = depth_; open > 0; open--) {
      const std::size_t last = text.find_last_not_of(" \t\n\r\f\v");
      if (last == std::string_view::npos || (text[last] != '}' && text[last] != ']')) break;
      text = text.substr(0, last);
    }
    return std::string(text);
  }

  // In quotes of another kind. A quote ends the string only where the value may end, so that 'it's' is one.
  std::optional<std::string> quoted_string() {
    const char quote = rest_.front();
    for (std::size_t i = 1; i < rest_.size(); i++) {
      if (quote == '"' && rest_[i] == '\\') {
        i++;
        continue;
      }
      if (rest_[i] != quote || !value_may_end(rest_.substr(i + 1))) continue;
      const std::string_view text = rest_.substr(1, i - 1);
      rest_.remove_prefix(i + 1);
      if (quote == '"')
        if (auto plain = unescaped(text)) return plain;
      return std::string(text);
    }
    return std::nullopt;
  }

  static bool value_may_end(std::string_view s) {
    s = without_space(s);
    if (s.starts_with(string_mark)) s = without_space(s.substr(string_mark.size()));
    return s.empty() || s.front() == ',' || s.front() == '}' || s.front() == ']';
  }

  // A number, a word of JSON's, or text that lacks its quotes.
  Value bare() {
    const std::size_t end = std::min({rest_.find_first_of(",}]"), rest_.find(string_mark), rest_.size()});
    const std::string_view text = without_space(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (is_number(text)) return Value::number(std::string(text));
    if (text == "true" || text == "True") return Value::boolean(true);
    if (text == "false" || text == "False") return Value::boolean(false);
    if (text == "null" || text == "None") return {};
    return Value::string(std::string(text));
  }

  std::string key() {
    skip_space();
    if (take(string_mark)) {
      std::string name = marked_string();
      skip_space();
      return name;
    }
    const std::size_t end = std::min(rest_.find_first_of(":,}]"), rest_.size());
    std::string_view name = without_space(rest_.substr(0, end));
    rest_.remove_prefix(end);
    if (name.size() >= 2 && (name.front() == '"' || name.front() == '\'' || name.front() == '`') &&
        name.back() == name.front())
      name = name.substr(1, name.size() - 2);
    return std::string(name);
  }

  // What may stand between a value and the next comma or bracket by mistake, such as a second closing mark.
  void skip_junk() {
    const std::size_t end = rest_.find_first_of(",}]");
    rest_.remove_prefix(std::min(end, rest_.size()));
  }

  void skip_separators() {
    while (!rest_.empty() && (is_space(rest_.front()) || rest_.front() == ',' || rest_.front() == ':'))
      rest_.remove_prefix(1);
  }
  void skip_space() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }

  std::string_view rest_;
  int depth_ = 0;
  bool complete_ = true;
};

}  // namespace

ParsedCall parse_tool_call(std::string_view text) {
  ParsedCall parsed;
  text = without_space(text);
  if (text.starts_with("call:")) text.remove_prefix(5);
  const std::size_t brace = text.find('{');
  const std::string_view name = without_space(text.substr(0, brace));
  parsed.has_name = !name.empty() && std::ranges::none_of(name, is_space) &&
                    name.find_first_of("<>\"'`,}[]") == std::string_view::npos;
  if (!parsed.has_name) return parsed;
  parsed.call.name = name;
  if (brace == std::string_view::npos) return parsed;
  ArgumentParser arguments(text.substr(brace + 1));
  parsed.call.arguments = arguments.object();
  parsed.complete = arguments.complete();
  return parsed;
}

}  // namespace rullama
