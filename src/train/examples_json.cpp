// Examples out of JSON lines. Apart, so that a build without a JSON library can leave it out.
#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "runtime/chat_json.h"
#include "train/examples.h"
#include "train/trainer.h"

namespace rullama {
namespace {

using Json = nlohmann::json;  // finds a key among many
constexpr Token kNoTarget = TrainBatch::kNoTarget;
constexpr std::int64_t kMasked = -100;  // HuggingFace's label of a token that is not to be predicted

class Reader {
 public:
  Reader(const Tokenizer& tokenizer, const ExampleOptions& options) : tokenizer_(tokenizer), o_(options) {}

  Result<> line(std::string_view text) {
    const auto parsed = parse_json<Json>(text);
    if (!parsed) {
      if (!utf8::valid(text)) return fail("is no UTF-8 text; save the file as UTF-8");
      std::string message = parsed.error().message;
      constexpr std::string_view here = "line 1, ";  // of this line's text, not of the file
      if (const auto at = message.find(here); at != std::string::npos) message.erase(at, here.size());
      return fail(cat(message, "; each line must be a whole object (JSONL)"));
    }
    const Json& json = *parsed;
    if (!json.is_object())
      return fail(text.starts_with('[') ? "is a JSON list; give one object a line (JSONL)" : "is no JSON object");
    data_.rows++;
    if (json.contains("messages")) return conversation(json, text);
    if (json.contains("input_ids")) return ids(json);
    if (json.contains("prompt") || json.contains("completion")) return completion(json);
    if (json.contains("text")) return text_row(json);
    return fail(R"(has none of "messages", "prompt" and "completion", "text", "input_ids")");
  }
  Dataset take() { return std::move(data_); }

 private:
  void keep(Example e) {
    if (e.tokens.size() > o_.max_length) {
      data_.truncated++;
      e.tokens.resize(o_.max_length);
      e.labels.resize(o_.max_length);
    }
    if (e.targets() == 0)
      data_.without_target++;
    else
      data_.examples.push_back(std::move(e));
  }

  // What training cannot show to the model must not be dropped without a word.
  static Result<> only_text(const Json& json, const std::vector<Message>& messages) {
    for (std::size_t i = 0; i < messages.size(); i++) {
      const auto is_text = [](const ContentPart& part) { return part.kind == ContentPart::Kind::text; };
      const Json* const list = json["messages"].is_array() ? &json["messages"] : nullptr;
      const bool pictures = list && i < list->size() && (*list)[i].contains("images") && !(*list)[i]["images"].empty();
      if (pictures || !std::ranges::all_of(messages[i].content, is_text))
        return fail(cat("message ", i + 1, " has images, sound or video, and training takes text only"));
    }
    return {};
  }

  Result<> conversation(const Json& json, std::string_view text) {
    auto read = conversation_from_json(text);
    if (!read) return failed(read);
    if (auto ok = only_text(json, read->messages); !ok) return ok;
    auto made = examples_of(read->messages, read->tools, tokenizer_, o_);
    if (!made) return failed(made);
    if (made->empty()) return fail("has no message of role assistant to learn from");
    for (Example& e : *made) keep(std::move(e));
    return {};
  }

  static Result<std::string> text_member(const Json& json, const char* key) {
    const auto found = json.find(key);
    if (found == json.end()) return fail(cat("has no ", quote(key)));
    if (!found->is_string()) return fail(cat(quote(key), " is no text"));
    return found->get<std::string>();
  }

  void add(Example& e, std::string_view text, bool learn) const {
    const auto tokens = tokenizer_.encode(text, {Markup::none});
    e.tokens.insert(e.tokens.end(), tokens.begin(), tokens.end());
    if (learn) e.labels.insert(e.labels.end(), tokens.begin(), tokens.end());
    e.labels.resize(e.tokens.size(), kNoTarget);
  }
  Example begun() const {
    Example e;
    if (const auto bos = tokenizer_.bos()) e = {{*bos}, {kNoTarget}};
    return e;
  }
  void end(Example& e) const {
    if (const auto eos = tokenizer_.eos(); o_.end_texts && eos) {
      e.tokens.push_back(*eos);
      e.labels.push_back(*eos);
    }
  }

  Result<> completion(const Json& json) {
    auto prompt = text_member(json, "prompt");
    if (!prompt) return failed(prompt);
    auto answer = text_member(json, "completion");
    if (!answer) return failed(answer);
    if (answer->empty()) return fail("has an empty \"completion\"");
    Example e = begun();
    add(e, *prompt, o_.prompts_too);
    add(e, *answer, true);
    end(e);
    keep(std::move(e));
    return {};
  }

  // A text longer than an example becomes several.
  Result<> text_row(const Json& json) {
    auto text = text_member(json, "text");
    if (!text) return failed(text);
    Example whole;
    add(whole, *text, true);
    end(whole);
    if (whole.tokens.empty()) return fail("has an empty \"text\"");
    const std::size_t start = begun().tokens.size(), piece = std::max<std::size_t>(o_.max_length, start + 1) - start;
    for (std::size_t at = 0; at < whole.tokens.size(); at += piece) {
      Example e = begun();
      const auto from = whole.tokens.begin() + static_cast<std::ptrdiff_t>(at);
      const auto to = whole.tokens.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, whole.tokens.size()));
      e.tokens.insert(e.tokens.end(), from, to);
      e.labels.insert(e.labels.end(), from, to);
      keep(std::move(e));
    }
    return {};
  }

  Result<Token> id_of(const Json& value, const char* key) const {
    if (!value.is_number_integer() || value < 0 || value >= tokenizer_.size())
      return fail(cat(quote(key), " has ", value.is_structured() ? "a list" : value.dump(),
                      ", expected token ids below ", tokenizer_.size()));
    return value.get<Token>();
  }

  Result<> ids(const Json& json) {
    const Json& ids = json["input_ids"];
    if (!ids.is_array() || ids.empty()) return fail("\"input_ids\" is no list of token ids");
    const auto labels = json.find("labels");
    if (labels != json.end() && (!labels->is_array() || labels->size() != ids.size()))
      return fail(cat("\"labels\" must be a list as long as \"input_ids\" (", ids.size(), ")"));
    const auto mask = json.find("attention_mask");
    if (mask != json.end() && (!mask->is_array() || mask->size() != ids.size()))
      return fail(cat("\"attention_mask\" must be a list as long as \"input_ids\" (", ids.size(), ")"));
    Example e;
    for (std::size_t i = 0; i < ids.size(); i++) {
      if (mask != json.end() && (*mask)[i] == 0) continue;  // padding
      auto id = id_of(ids[i], "input_ids");
      if (!id) return failed(id);
      e.tokens.push_back(*id);
      if (labels != json.end() && (*labels)[i] == kMasked) {
        e.labels.push_back(kNoTarget);
        continue;
      }
      auto label = labels == json.end() ? id : id_of((*labels)[i], "labels");
      if (!label) return failed(label);
      e.labels.push_back(*label);
    }
    if (e.targets() == 0)
      return fail("has nothing to predict: after the first token there is none, or all labels are -100");
    keep(std::move(e));
    return {};
  }

  const Tokenizer& tokenizer_;
  const ExampleOptions& o_;
  Dataset data_;
};

}  // namespace

Result<Dataset> examples_from_jsonl(std::string_view jsonl, std::string_view file, const Tokenizer& tokenizer,
                                    const ExampleOptions& options) {
  Reader reader(tokenizer, options);
  if (jsonl.starts_with("\xef\xbb\xbf")) jsonl.remove_prefix(3);
  for (std::size_t number = 1; !jsonl.empty(); number++) {
    const std::size_t end = std::min(jsonl.find('\n'), jsonl.size());
    const std::string_view line = trimmed(jsonl.substr(0, end));
    jsonl.remove_prefix(std::min(end + 1, jsonl.size()));
    if (line.empty()) continue;
    if (auto ok = reader.line(line); !ok)
      return fail(ok.error().code, cat(file, ":", number, ": ", ok.error().message));
  }
  Dataset data = reader.take();
  if (data.rows == 0) return fail(cat(file, " has no examples: it is empty"));
  if (data.examples.empty())
    return fail(cat(file, ": every example is cut off before what is to be learnt; use a larger --max-length than ",
                    options.max_length));
  return data;
}

}  // namespace rullama
