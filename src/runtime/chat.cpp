#include "runtime/chat.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "base/utf8.h"
#include "runtime/chat_writer.h"

namespace rullama {
namespace {

bool is_space(std::uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Bytes of the white space character at the start, or 0.
std::size_t leading_space(std::string_view text) {
  const std::size_t length = utf8::valid_length(text);
  return length > 0 && is_space(utf8::decode(text)) ? length : 0;
}

std::size_t trailing_space(std::string_view text) {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); length++)
    if (leading_space(text.substr(text.size() - length)) == length) return length;
  return 0;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  while (const std::size_t n = leading_space(text)) text.remove_prefix(n);
  while (const std::size_t n = trailing_space(text)) text.remove_suffix(n);
  return text;
}

std::string_view role_name(Role role) {
  switch (role) {
    case Role::system: return "system";
    case Role::developer: return "developer";
    case Role::user: return "user";
    case Role::assistant: return "assistant";
    case Role::tool: return "tool";
  }
  return {};
}

Message Message::text(Role role, std::string text) {
  Message message;
  message.role = role;
  message.content.push_back({ContentPart::Kind::text, std::move(text)});
  return message;
}

std::optional<ChatFormat> chat_format(const Tokenizer& tokenizer, bool has_per_layer_embeddings) {
  if (tokenizer.marker("<|turn>") && tokenizer.marker("<turn|>"))
    return has_per_layer_embeddings ? ChatFormat::gemma4_small : ChatFormat::gemma4_large;
  if (tokenizer.marker("<start_of_turn>") && tokenizer.marker("<end_of_turn>")) return ChatFormat::gemma3;
  return std::nullopt;
}

std::string RenderedPrompt::text() const {
  std::string all;
  for (const Segment& s : segments) all += s.text;
  return all;
}

Result<RenderedPrompt> render(const std::vector<Message>& messages, const RenderOptions& options) {
  return options.format == ChatFormat::gemma3 ? render_gemma3(messages, options) : render_gemma4(messages, options);
}

Result<RenderedPrompt> render_gemma3(const std::vector<Message>& messages, const RenderOptions& options) {
  if (!options.tools.empty()) return fail(ErrorCode::unsupported, "the chat format of Gemma 3 has no tools");
  PromptWriter out;
  out.control("<bos>");
  auto first = messages.begin();
  std::string prefix;  // the system text, which opens the first turn
  if (first != messages.end() && (first->role == Role::system || first->role == Role::developer)) {
    for (const ContentPart& part : first->content) prefix += part.text;
    prefix += "\n\n";
    ++first;
  }
  for (auto m = first; m != messages.end(); ++m) {
    const bool users_turn = (m - first) % 2 == 0;
    const auto number = m - messages.begin() + 1;
    if (m->role != (users_turn ? Role::user : Role::assistant))
      return fail(cat("message ", number, " has role '", role_name(m->role), "' where '",
                      users_turn ? "user" : "assistant",
                      "' must follow: in Gemma 3's chat format user and assistant alternate after an optional system "
                      "message, beginning with user"));
    if (!m->tool_calls.empty())
      return fail(ErrorCode::unsupported, cat("message ", number, " calls a tool; Gemma 3's chat format has no tools"));
    out.control("<start_of_turn>");
    out.text(users_turn ? "user\n" : "model\n");
    if (m == first) out.text(prefix);
    if (!users_turn) out.answer(m - messages.begin());
    for (const ContentPart& part : m->content) {
      switch (part.kind) {
        case ContentPart::Kind::text: out.text(trimmed(part.text)); break;
        case ContentPart::Kind::image: out.control("<start_of_image>"); break;
        case ContentPart::Kind::audio:
        case ContentPart::Kind::video:
          return fail(ErrorCode::unsupported,
                      cat("message ", number, " has audio or video; Gemma 3 takes only images"));
      }
    }
    out.control("<end_of_turn>");
    out.text("\n");
    out.answer({});
  }
  if (options.add_generation_prompt) {
    out.control("<start_of_turn>");
    out.text("model\n");
  }
  return out.take();
}

Result<std::vector<Token>> encode(const Tokenizer& tokenizer, std::span<const Segment> segments) {
  std::vector<Token> ids;
  std::string run;
  for (std::size_t i = 0; i < segments.size(); i++) {
    const Segment& segment = segments[i];
    if (segment.control) {
      const auto id = segment.text == "<bos>" && tokenizer.bos() ? tokenizer.bos() : tokenizer.marker(segment.text);
      if (!id) return fail(cat("the model's vocabulary has no token ", segment.text, ", which the chat format needs"));
      ids.push_back(*id);
    } else {
      run += segment.text;
      if (i + 1 < segments.size() && !segments[i + 1].control) continue;
      std::ranges::copy(tokenizer.encode(run, {Markup::none}), std::back_inserter(ids));
      run.clear();
    }
  }
  return ids;
}

}  // namespace rullama
