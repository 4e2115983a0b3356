// Gemma 4's chat format with tools. The reference for every detail is the template that Google publishes with the
// models (version of 2026-07-09); the oddities that a model has seen in training are kept and marked as such.
#include <algorithm>

#include "base/text.h"
#include "runtime/chat.h"
#include "runtime/chat_writer.h"

namespace rullama {
namespace {

constexpr std::string_view quote = "<|\"|>";

std::string upper(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
  return text;
}

// How Jinja prints a value where a string is expected: a list of types comes out in Python's notation.
std::string printed(const Value& value) {
  if (!value.is_array()) return value.is_object() ? json_text(value) : value.text();
  std::string out = "[";
  for (const Value& item : value.items()) {
    if (out.size() > 1) out += ", ";
    out += item.is_string() ? "'" + item.text() + "'" : printed(item);
  }
  return out + "]";
}

std::string without_thinking(std::string_view text) {
  constexpr std::string_view open = "<|channel>", close = "<channel|>";
  std::string out;
  while (true) {
    const std::size_t end = text.find(close);
    const std::string_view part = text.substr(0, end);
    out += part.substr(0, part.find(open));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + close.size());
  }
  return std::string(trimmed(out));
}

class Commas {
 public:
  explicit Commas(PromptWriter& out) : out_(out) {}
  void next() {
    if (!first_) out_.text(",");
    first_ = false;
  }

 private:
  PromptWriter& out_;
  bool first_ = true;
};

// Values and schemas in Gemma 4's notation: strings between <|"|>, keys sorted and bare.
class Notation {
 public:
  explicit Notation(PromptWriter& out) : out_(out) {}

  void string(std::string_view text) {
    out_.control(quote);
    out_.text(text);
    out_.control(quote);
  }

  void members(const Value& object, bool quote_keys) {
    Commas commas(out_);
    for (const Value::Member* m : object.sorted()) {
      commas.next();
      if (quote_keys)
        string(m->first);
      else
        out_.text(m->first);
      out_.text(":");
      value(m->second, quote_keys);
    }
  }

  void value(const Value& v, bool quote_keys) {
    switch (v.kind()) {
      case Value::Kind::null: out_.text("null"); break;
      case Value::Kind::boolean:
      case Value::Kind::number: out_.text(v.text()); break;
      case Value::Kind::string: string(v.text()); break;
      case Value::Kind::object:
        out_.text("{");
        members(v, quote_keys);
        out_.text("}");
        break;
      case Value::Kind::array: {
        out_.text("[");
        Commas commas(out_);
        for (const Value& item : v.items()) {
          commas.next();
          value(item, quote_keys);
        }
        out_.text("]");
      }
    }
  }

  void declaration(const Value& tool) {
    const Value& function = tool["function"].is_object() ? tool["function"] : tool;
    out_.control("<|tool>");
    out_.text(cat("declaration:", function["name"].text(), "{description:"));
    string(printed(function["description"]));
    if (const Value& parameters = function["parameters"]; parameters.truthy()) {
      out_.text(",parameters:{");
      if (parameters["properties"].truthy()) {
        out_.text("properties:{");
        properties(parameters["properties"], false);
        out_.text("},");
      }
      if (parameters["required"].truthy()) {
        required(parameters["required"]);
        out_.text(",");
      }
      type_and_close(parameters["type"]);
    }
    if (const Value& response = function["response"]; function.has("response")) {
      out_.text(",response:{");
      if (response["description"].truthy()) {
        out_.text("description:");
        string(printed(response["description"]));
        out_.text(",");
      }
      if (upper(printed(response["type"])) == "OBJECT") type_and_close(response["type"]);
    }
    out_.text("}");
    out_.control("<tool|>");
  }

 private:
  // The template closes the brace only together with a type.
  void type_and_close(const Value& type) {
    if (!type.truthy()) return;
    out_.text("type:");
    string(upper(printed(type)));
    out_.text("}");
  }

  void required(const Value& names) {
    out_.text("required:[");
    Commas commas(out_);
    for (const Value& name : names.items()) {
      commas.next();
      string(printed(name));
    }
    out_.text("]");
  }

  // `of_bare_schema`: an object schema without "properties" is taken for the properties themselves, its standard
  // keys aside.
  void properties(const Value& schemas, bool of_bare_schema) {
    Commas commas(out_);
    for (const Value::Member* m : schemas.sorted()) {
      const std::string& key = m->first;
      if (of_bare_schema &&
          (key == "description" || key == "type" || key == "properties" || key == "required" || key == "nullable"))
        continue;
      commas.next();
      out_.text(key + ":{");
      schema(m->second);
      out_.text("}");
    }
  }

  void schema(const Value& s) {
    const std::string type = upper(printed(s["type"]));
    Commas commas(out_);
    if (s["description"].truthy()) {
      commas.next();
      out_.text("description:");
      string(printed(s["description"]));
    }
    if (type == "STRING" && s["enum"].truthy()) {
      commas.next();
      out_.text("enum:");
      value(s["enum"], true);
    }
    if (type == "ARRAY" && s["items"].is_object() && s["items"].truthy()) {
      commas.next();
      items(s["items"]);
    }
    if (s["nullable"].truthy()) {
      commas.next();
      out_.text("nullable:true");
    }
    if (type == "OBJECT") {
      const bool bare = !s["properties"].is_object();
      commas.next();
      out_.text("properties:{");
      properties(bare ? s : s["properties"], bare);
      out_.text("}");
      if (s["required"].truthy()) {
        commas.next();
        required(s["required"]);
      }
    }
    commas.next();
    out_.text("type:");
    string(type);
  }

  void items(const Value& schema_of_items) {
    out_.text("items:{");
    Commas commas(out_);
    for (const Value::Member* m : schema_of_items.sorted()) {
      const auto& [key, v] = *m;
      if (v.is_null()) continue;
      commas.next();
      if (key == "properties") {
        out_.text("properties:{");
        properties(v, false);
        out_.text("}");
      } else if (key == "required") {
        required(v);
      } else if (key == "type") {
        out_.text("type:");
        value(upper_types(v), true);
      } else {
        out_.text(key + ":");
        value(v, true);
      }
    }
    out_.text("}");
  }

  static Value upper_types(const Value& types) {
    if (!types.is_array()) return Value::string(upper(printed(types)));
    Value all = Value::array();
    for (const Value& t : types.items()) all.append(Value::string(upper(printed(t))));
    return all;
  }

  PromptWriter& out_;
};

class Gemma4Renderer {
 public:
  Gemma4Renderer(const std::vector<Message>& messages, const RenderOptions& options)
      : messages_(messages), options_(options) {}

  RenderedPrompt render() {
    out_.control("<bos>");
    const bool has_system =
        !messages_.empty() && (messages_[0].role == Role::system || messages_[0].role == Role::developer);
    if (has_system || options_.think || !options_.tools.empty()) system_turn(has_system);
    begin_ = has_system ? 1 : 0;
    for (std::size_t i = begin_; i < messages_.size(); i++)
      if (messages_[i].role == Role::user) last_user_ = i;
    for (std::size_t i = begin_; i < messages_.size(); i++)
      if (messages_[i].role != Role::tool) message(i);
    if (options_.add_generation_prompt) generation_prompt();
    return out_.take();
  }

 private:
  // What the model's turn ended with, which decides how generation goes on.
  enum class Tail { text, call, result };

  void system_turn(bool has_system) {
    open_turn("system");
    if (options_.think) {
      out_.control("<|think|>");
      out_.text("\n");
    }
    if (has_system)
      for (const ContentPart& part : messages_[0].content) {
        out_.text(trimmed(part.text));
        if (messages_[0].content_is_list) out_.text(" ");
      }
    for (const Value& tool : options_.tools) notation_.declaration(tool);
    close_turn();
  }

  void message(std::size_t i) {
    const Message& m = messages_[i];
    const bool model = m.role == Role::assistant;
    tail_ = Tail::text;
    if (!model || !in_model_turn_) open_turn(model ? "model" : role_name(m.role));
    in_model_turn_ = model;
    if (model) out_.answer(i);

    const bool after_last_user = !last_user_ || i > *last_user_;
    if (!m.thinking.empty() && (after_last_user || (options_.keep_thinking && !m.tool_calls.empty()))) {
      out_.control("<|channel>");
      out_.text("thought\n" + m.thinking + "\n");
      out_.control("<channel|>");
    }
    for (const ToolCall& call : m.tool_calls) {
      out_.control("<|tool_call>");
      out_.text("call:" + call.name + "{");
      notation_.members(call.arguments, false);
      out_.text("}");
      out_.control("<tool_call|>");
      tail_ = Tail::call;
    }
    const bool answered = results(i);
    if (model) out_.answer(i);
    if (answered) tail_ = Tail::result;
    const bool has_content = content(m);

    std::size_t next = i + 1;
    while (next < messages_.size() && messages_[next].role == Role::tool) next++;
    const bool last = next == messages_.size();
    const bool goes_on = model && !last && messages_[next].role == Role::assistant;
    if (tail_ == Tail::call)
      out_.control("<|tool_response>");  // the caller's turn to answer
    else if (!goes_on && !(answered && !has_content && last))
      close_turn();
    out_.answer({});
  }

  // The results that belong to message i: its own or those of the tool messages behind it.
  bool results(std::size_t i) {
    const Message& m = messages_[i];
    for (const ToolResult& r : m.tool_results) result(r.name.empty() ? "unknown" : r.name, r.response);
    if (!m.tool_results.empty()) return true;
    if (m.tool_calls.empty()) return false;
    std::size_t k = i + 1;
    for (; k < messages_.size() && messages_[k].role == Role::tool; k++) {
      const Message& answer = messages_[k];
      std::string name = answer.name.empty() ? "unknown" : answer.name;
      for (const ToolCall& call : m.tool_calls)
        if (call.id == answer.tool_call_id) name = call.name;
      if (answer.content.empty() && !answer.content_is_list) {
        result(name, answer.result);
        continue;
      }
      std::string text;
      for (const ContentPart& part : answer.content)
        if (part.kind == ContentPart::Kind::text) text += part.text;
      result(name, Value::string(text));
      for (const ContentPart& part : answer.content) medium(part.kind);
    }
    return k > i + 1;
  }

  void result(const std::string& name, const Value& response) {
    out_.control("<|tool_response>");  // the first one is how the model ends its calls
    out_.answer({});
    out_.text("response:" + name + "{");
    if (response.is_object()) {
      notation_.members(response, false);
    } else {
      out_.text("value:");
      notation_.value(response, false);
    }
    out_.text("}");
    out_.control("<tool_response|>");
  }

  // Returns whether anything but white space came out.
  bool content(const Message& m) {
    bool any = false;
    for (const ContentPart& part : m.content) {
      if (part.kind == ContentPart::Kind::text) {
        const std::string text =
            m.role == Role::assistant ? without_thinking(part.text) : std::string(trimmed(part.text));
        out_.text(text);
        any = any || !text.empty();
      } else {
        medium(part.kind);
        any = true;
      }
    }
    return any;
  }

  void medium(ContentPart::Kind kind) {
    if (kind == ContentPart::Kind::image) out_.control("<|image|>");
    if (kind == ContentPart::Kind::audio) out_.control("<|audio|>");
    if (kind == ContentPart::Kind::video) out_.control("<|video|>");
  }

  void generation_prompt() {
    if (tail_ == Tail::text) {
      open_turn("model");
      if (options_.think || options_.format != ChatFormat::gemma4_large) return;
      out_.control("<|channel>");
      out_.text("thought\n");
      out_.control("<channel|>");
    } else if (tail_ == Tail::result && options_.think) {
      out_.control("<|channel>");
      out_.text("thought\n");
      out_.opens_thought();
    }
  }

  void open_turn(std::string_view role) {
    out_.control("<|turn>");
    out_.text(role);
    out_.text("\n");
  }
  void close_turn() {
    out_.control("<turn|>");
    out_.text("\n");
  }

  const std::vector<Message>& messages_;
  const RenderOptions& options_;
  PromptWriter out_;
  Notation notation_{out_};
  std::size_t begin_ = 0;                 // first message after the system text
  std::optional<std::size_t> last_user_;  // index of the last user message
  bool in_model_turn_ = false;            // the last message that is no tool result was the assistant's
  Tail tail_ = Tail::text;
};

}  // namespace

Result<RenderedPrompt> render_gemma4(const std::vector<Message>& messages, const RenderOptions& options) {
  return Gemma4Renderer(messages, options).render();
}

}  // namespace rullama
