// A JSON-like value: tool declarations, the arguments of a tool call and its result.
// No parser in here, so the core does not need a JSON library (chat_json.h has that).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama {

class Value {
 public:
  enum class Kind : unsigned char { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, Value>;

  Value() = default;
  [[nodiscard]] static Value boolean(bool b);
  [[nodiscard]] static Value number(std::string literal);  // as it was written: 3, 2.50, 1e20 stay what they are
  [[nodiscard]] static Value string(std::string text);
  [[nodiscard]] static Value array(std::vector<Value> items = {});
  [[nodiscard]] static Value object(std::vector<Member> members = {});

  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool is_null() const { return kind_ == Kind::null; }
  [[nodiscard]] bool is_string() const { return kind_ == Kind::string; }
  [[nodiscard]] bool is_array() const { return kind_ == Kind::array; }
  [[nodiscard]] bool is_object() const { return kind_ == Kind::object; }
  // False for null, false, 0, "", [] and {}.
  [[nodiscard]] bool truthy() const;

  // The text of a string, the literal of a number, "true" or "false"; else empty.
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const std::vector<Value>& items() const { return items_; }       // of an array
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }  // of an object, in order
  // The member with this key (the last of several), or a null value if there is none or this is no object.
  [[nodiscard]] const Value& operator[](std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const;
  // Members by key as Jinja's dictsort puts them: letters A to Z count as a to z.
  [[nodiscard]] std::vector<const Member*> sorted() const;

  void set(std::string key, Value value);  // replaces a member of that key
  void append(Value item) { items_.push_back(std::move(item)); }

  friend bool operator==(const Value&, const Value&) = default;

 private:
  Kind kind_ = Kind::null;
  std::string text_;
  std::vector<Value> items_;
  std::vector<Member> members_;
};

// Compact JSON, members in their order. Strings are expected to be UTF-8; ill-formed bytes become U+FFFD.
[[nodiscard]] std::string json_text(const Value& value);
// A JSON string literal with its quotes.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace rullama
