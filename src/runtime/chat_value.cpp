#include "runtime/chat_value.h"

#include <algorithm>
#include <cstdio>

#include "base/utf8.h"

namespace rullama {
namespace {

const Value null_value;

bool is_zero(std::string_view literal) {
  const std::string_view mantissa = literal.substr(0, literal.find_first_of("eE"));
  return mantissa.find_first_of("123456789") == std::string_view::npos;
}

}  // namespace

Value Value::boolean(bool b) {
  Value v;
  v.kind_ = Kind::boolean;
  v.text_ = b ? "true" : "false";
  return v;
}
Value Value::number(std::string literal) {
  Value v;
  v.kind_ = Kind::number;
  v.text_ = std::move(literal);
  return v;
}
Value Value::string(std::string text) {
  Value v;
  v.kind_ = Kind::string;
  v.text_ = std::move(text);
  return v;
}
Value Value::array(std::vector<Value> items) {
  Value v;
  v.kind_ = Kind::array;
  v.items_ = std::move(items);
  return v;
}
Value Value::object(std::vector<Member> members) {
  Value v;
  v.kind_ = Kind::object;
  v.members_ = std::move(members);
  return v;
}

bool Value::truthy() const {
  switch (kind_) {
    case Kind::null: return false;
    case Kind::boolean: return text_ == "true";
    case Kind::number: return !is_zero(text_);
    case Kind::string: return !text_.empty();
    case Kind::array: return !items_.empty();
    case Kind::object: return !members_.empty();
  }
  return false;
}

const Value& Value::operator[](std::string_view key) const {
  for (auto m = members_.rbegin(); m != members_.rend(); ++m)
    if (m->first == key) return m->second;
  return null_value;
}

bool Value::has(std::string_view key) const {
  return std::ranges::any_of(members_, [&](const Member& m) { return m.first == key; });
}

std::vector<const Value::Member*> Value::sorted() const {
  const auto lower = [](char c) { return static_cast<unsigned char>(c >= 'A' && c <= 'Z' ? c + 32 : c); };
  std::vector<const Member*> order;
  for (const Member& m : members_) order.push_back(&m);
  std::ranges::sort(order, [&](const Member* a, const Member* b) {
    const auto first = std::ranges::mismatch(a->first, b->first, {}, lower, lower);
    if (first.in1 == a->first.end() && first.in2 == b->first.end()) return a < b;  // keep their order
    if (first.in1 == a->first.end() || first.in2 == b->first.end()) return first.in1 == a->first.end();
    return lower(*first.in1) < lower(*first.in2);
  });
  return order;
}

void Value::set(std::string key, Value value) {
  for (Member& m : members_)
    if (m.first == key) {
      m.second = std::move(value);
      return;
    }
  members_.emplace_back(std::move(key), std::move(value));
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : utf8::repair(text)) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
          out += escape;
        } else {
          out += c;
        }
    }
  }
  return out += '"';
}

std::string json_text(const Value& value) {
  std::string out;
  switch (value.kind()) {
    case Value::Kind::null: return "null";
    case Value::Kind::boolean:
    case Value::Kind::number: return value.text();
    case Value::Kind::string: return json_string(value.text());
    case Value::Kind::array:
      for (const Value& item : value.items()) {
        out += out.empty() ? '[' : ',';
        out += json_text(item);
      }
      return out.empty() ? "[]" : out + ']';
    case Value::Kind::object:
      for (const auto& [key, member] : value.members()) {
        out += out.empty() ? '{' : ',';
        out += json_string(key) + ':' + json_text(member);
      }
      return out.empty() ? "{}" : out + '}';
  }
  return out;
}

}  // namespace rullama
