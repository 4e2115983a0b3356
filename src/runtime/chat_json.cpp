#include "runtime/chat_json.h"

#include "base/json.h"
#include "base/text.h"

namespace rullama {
namespace {

using Json = nlohmann::ordered_json;

Value value_of(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean: return Value::boolean(json.get<bool>());
    case Json::value_t::string: return Value::string(json.get<std::string>());
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float: return Value::number(json.dump());
    case Json::value_t::array: {
      Value array = Value::array();
      for (const Json& item : json) array.append(value_of(item));
      return array;
    }
    case Json::value_t::object: {
      Value object = Value::object();
      for (const auto& [key, item] : json.items()) object.set(key, value_of(item));
      return object;
    }
    default: return Value();
  }
}

const Json& member(const Json& object, std::string_view key) {
  static const Json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

std::string text_member(const Json& object, std::string_view key) {
  const Json& value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

Result<Role> role_of(const Json& json, const std::string& where) {
  const std::string name = text_member(json, "role");
  if (name == "model") return Role::assistant;
  for (const Role role : {Role::system, Role::developer, Role::user, Role::assistant, Role::tool})
    if (name == role_name(role)) return role;
  return fail(
      cat(where, " has role ", rullama::quote(name), "; it must be system, developer, user, assistant or tool"));
}

Result<ContentPart> part_of(const Json& json, const std::string& where) {
  using Kind = ContentPart::Kind;
  if (json.is_string()) return ContentPart{Kind::text, json.get<std::string>()};
  if (!json.is_object()) return fail(cat(where, " has a content part that is neither text nor an object"));
  const std::string type = text_member(json, "type");
  if (type == "text" || (type.empty() && json.contains("text"))) {
    if (!member(json, "text").is_string()) return fail(cat(where, " has a text part without \"text\""));
    return ContentPart{Kind::text, text_member(json, "text")};
  }
  if (type == "image" || type == "image_url") return ContentPart{Kind::image, {}};
  if (type == "audio" || type == "input_audio") return ContentPart{Kind::audio, {}};
  if (type == "video") return ContentPart{Kind::video, {}};
  return fail(
      cat(where, " has a content part of type ", rullama::quote(type), "; text, image, audio and video are known"));
}

Result<> read_content(const Json& content, const std::string& where, Message& message) {
  if (content.is_string()) {
    message.content.push_back({ContentPart::Kind::text, content.get<std::string>()});
  } else if (content.is_array()) {
    message.content_is_list = true;
    for (const Json& item : content) {
      auto part = part_of(item, where);
      if (!part) return failed(part);
      message.content.push_back(std::move(*part));
    }
  } else if (message.role == Role::tool) {
    message.result = value_of(content);
  } else if (!content.is_null()) {
    return fail(cat(where, " has a \"content\" that is neither text nor a list of parts"));
  }
  return {};
}

Result<ToolCall> call_of(const Json& json, const std::string& where) {
  const Json& function = json.is_object() && json.contains("function") ? member(json, "function") : json;
  if (!function.is_object() || !member(function, "name").is_string())
    return fail(cat(where, " has a tool call without a function name"));
  ToolCall call;
  call.id = text_member(json, "id");
  call.name = text_member(function, "name");
  const Json& arguments = member(function, "arguments");
  if (arguments.is_null()) return call;
  auto value = arguments.is_string() ? value_from_json(arguments.get_ref<const std::string&>())
                                     : Result<Value>(value_of(arguments));
  if (!value || !value->is_object())
    return fail(cat(where, " calls ", rullama::quote(call.name), " with arguments that are no JSON object"));
  call.arguments = std::move(*value);
  return call;
}

Result<Message> message_of(const Json& json, const std::string& where) {
  if (!json.is_object()) return fail(cat(where, " is not an object"));
  Message message;
  auto role = role_of(json, where);
  if (!role) return failed(role);
  message.role = *role;
  if (auto ok = read_content(member(json, "content"), where, message); !ok) return failed(ok);
  for (const auto* key : {"thinking", "reasoning_content", "reasoning"})
    if (std::string text = text_member(json, key); !text.empty()) message.thinking = std::move(text);
  message.tool_call_id = text_member(json, "tool_call_id");
  message.name = text_member(json, json.contains("tool_name") ? "tool_name" : "name");
  for (const Json& item : member(json, "tool_calls")) {
    auto call = call_of(item, where);
    if (!call) return failed(call);
    message.tool_calls.push_back(std::move(*call));
  }
  for (const Json& item : member(json, "tool_responses")) {
    if (!item.is_object()) return fail(cat(where, " has a tool response that is not an object"));
    message.tool_results.push_back({text_member(item, "name"), value_of(member(item, "response"))});
  }
  const bool tool = message.role == Role::tool && json.contains("content");
  if (!member(json, "content").is_structured() && !member(json, "content").is_string() && !tool &&
      message.tool_calls.empty() && message.tool_results.empty() && message.thinking.empty())
    return fail(cat(where, " has no \"content\": a text, or a list of parts"));
  return message;
}

Result<std::vector<Value>> tools_of(const Json& json) {
  if (!json.is_array()) return fail("tools must be a JSON list");
  std::vector<Value> tools;
  for (const Json& item : json) {
    Value tool = value_of(item);
    const Value& function = tool["function"].is_object() ? tool["function"] : tool;
    if (!function["name"].is_string()) return fail(cat("tool ", tools.size() + 1, " has no function name"));
    tools.push_back(std::move(tool));
  }
  return tools;
}

}  // namespace

Result<Value> value_from_json(std::string_view json) {
  auto value = parse_json(json);
  if (!value) return failed(value);
  return value_of(*value);
}

Result<std::vector<Value>> tools_from_json(std::string_view json) {
  auto value = parse_json(json);
  if (!value) return failed(value);
  return tools_of(*value);
}

Result<Conversation> conversation_from_json(std::string_view json) {
  auto value = parse_json(json);
  if (!value) return failed(value);
  const Json& list = value->is_object() ? member(*value, "messages") : *value;
  if (!list.is_array()) return fail("expected a JSON list of messages, or an object with \"messages\"");
  Conversation conversation;
  for (const Json& item : list) {
    auto message = message_of(item, cat("message ", conversation.messages.size() + 1));
    if (!message) return failed(message);
    conversation.messages.push_back(std::move(*message));
  }
  if (value->is_object() && value->contains("tools") && !member(*value, "tools").is_null()) {
    auto tools = tools_of(member(*value, "tools"));
    if (!tools) return failed(tools);
    conversation.tools = std::move(*tools);
  }
  return conversation;
}

std::string message_to_json(const Message& message) {
  Value json = Value::object();
  json.set("role", Value::string(std::string(role_name(message.role))));
  std::string text;
  for (const ContentPart& part : message.content) text += part.text;
  json.set("content", Value::string(std::move(text)));
  if (!message.thinking.empty()) json.set("thinking", Value::string(message.thinking));
  Value calls = Value::array();
  for (const ToolCall& call : message.tool_calls) {
    Value function = Value::object();
    function.set("name", Value::string(call.name));
    function.set("arguments", call.arguments);
    Value entry = Value::object();
    if (!call.id.empty()) entry.set("id", Value::string(call.id));
    entry.set("type", Value::string("function"));
    entry.set("function", std::move(function));
    calls.append(std::move(entry));
  }
  if (calls.truthy()) json.set("tool_calls", std::move(calls));
  return json_text(json);
}

}  // namespace rullama
