#include "train/examples.h"

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "train/trainer.h"

namespace rullama {
namespace {

constexpr Token kNoTarget = TrainBatch::kNoTarget;

std::string text_of(std::span<const Segment> segments) {
  std::string all;
  for (const Segment& s : segments) all += s.text;
  return all;
}

// The stretch from the first to the last of message i's answer; results of the tools that it calls may lie between.
std::span<const Segment> answer_in(const RenderedPrompt& prompt, std::size_t i) {
  const auto is_answer = [i](const Segment& s) { return s.answer == i; };
  const auto first = std::ranges::find_if(prompt.segments, is_answer);
  auto last = prompt.segments.end();
  while (last != first && !is_answer(*std::prev(last))) --last;
  return {first, last};
}

class Turns {
 public:
  Turns(const std::vector<Message>& messages, const std::vector<Value>& tools, const Tokenizer& tokenizer,
        const ExampleOptions& options)
      : messages_(messages), tokenizer_(tokenizer), options_(options) {
    how_.format = *options.format;
    how_.tools = tools;
    how_.think = std::ranges::any_of(messages, [](const Message& m) { return !m.thinking.empty(); });
  }

  Result<std::vector<Example>> examples() {
    auto whole = shown(messages_.size(), false);
    if (!whole) return failed(whole);
    std::vector<Example> each;
    bool same = true;  // every prompt is a beginning of the whole
    for (std::size_t i = 0; i < messages_.size(); i++) {
      if (messages_[i].role != Role::assistant) continue;
      auto before = shown(i, true), after = shown(i + 1, false);
      // a thought that the prompt would open is left to the answer, which may have none
      if (before && before->opens_thought) before = shown(i, false);
      if (!before) return failed(before);
      if (!after) return failed(after);
      const auto answer = answer_in(*after, i);
      if (answer.empty()) continue;
      const auto there = answer_in(*whole, i);
      const std::span<const Segment> until(whole->segments.data(), there.data());
      same = same && text_of(until) == before->text() && text_of(there) == text_of(answer);
      Example e;
      for (Segment& s : before->segments) s.answer.reset();  // earlier answers have examples of their own
      if (auto ok = add(e, before->segments); !ok) return failed(ok);
      if (auto ok = add(e, answer); !ok) return failed(ok);
      each.push_back(std::move(e));
    }
    if (!same || each.size() < 2) return each;
    Example all;
    if (auto ok = add(all, whole->segments); !ok) return failed(ok);
    return std::vector<Example>{std::move(all)};
  }

 private:
  Result<RenderedPrompt> shown(std::size_t count, bool ask) {
    how_.add_generation_prompt = ask;
    return render({messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(count)}, how_);
  }
  // Prompts and answers are encoded apart, as when the answer comes from the model.
  Result<> add(Example& e, std::span<const Segment> segments) {
    for (std::size_t begin = 0; begin < segments.size();) {
      std::size_t end = begin + 1;
      while (end < segments.size() && segments[end].answer == segments[begin].answer) end++;
      auto tokens = encode(tokenizer_, segments.subspan(begin, end - begin));
      if (!tokens) return failed(tokens);
      e.tokens.insert(e.tokens.end(), tokens->begin(), tokens->end());
      if (options_.prompts_too || segments[begin].answer)
        e.labels.insert(e.labels.end(), tokens->begin(), tokens->end());
      e.labels.resize(e.tokens.size(), kNoTarget);
      begin = end;
    }
    return {};
  }

  const std::vector<Message>& messages_;
  const Tokenizer& tokenizer_;
  const ExampleOptions& options_;
  RenderOptions how_;
};

}  // namespace

std::size_t Example::targets() const {
  return static_cast<std::size_t>(
      std::count_if(labels.begin() + !labels.empty(), labels.end(), [](Token t) { return t != kNoTarget; }));
}

std::span<const Token> Example::prompt() const {
  const auto first =
      std::find_if(labels.begin() + !labels.empty(), labels.end(), [](Token t) { return t != kNoTarget; });
  return {tokens.data(), static_cast<std::size_t>(first - labels.begin())};
}

Result<std::vector<Example>> examples_of(const std::vector<Message>& messages, const std::vector<Value>& tools,
                                         const Tokenizer& tokenizer, const ExampleOptions& options) {
  if (!options.format)
    return fail(ErrorCode::unsupported,
                "has messages, but the vocabulary of this model has no marks for turns; use \"prompt\" and "
                "\"completion\", or \"text\"");
  return Turns(messages, tools, tokenizer, options).examples();
}

}  // namespace rullama
