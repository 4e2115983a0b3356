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
    std::vector<std::size_t> answers;
    bool same = true;  // every prompt is a beginning of the whole
    for (std::size_t i = 0; i < messages_.size(); i++) {
      if (messages_[i].role != Role::assistant) continue;
      const auto turn = turn_of(i);
      if (!turn) return std::unexpected(turn.error());
      const auto answer = answer_in(turn->after, i);
      if (answer.empty()) continue;
      const auto there = answer_in(*whole, i);
      const std::span<const Segment> until(whole->segments.data(), there.data());
      same = same && text_of(until) == turn->before.text() && text_of(there) == text_of(answer);
      answers.push_back(i);
    }
    if (same && answers.size() > 1) {
      Example all;
      if (auto ok = add(all, whole->segments); !ok) return failed(ok);
      return std::vector<Example>{std::move(all)};
    }
    std::vector<Example> each;
    for (const std::size_t i : answers) {
      auto turn = turn_of(i);
      if (!turn) return failed(turn);
      Example e;
      for (Segment& s : turn->before.segments) s.answer.reset();  // earlier answers have examples of their own
      if (auto ok = add(e, turn->before.segments); !ok) return failed(ok);
      if (auto ok = add(e, answer_in(turn->after, i)); !ok) return failed(ok);
      // what will be cut anyway need not be kept for each turn of a long conversation
      const std::size_t most = std::min<std::size_t>(e.tokens.size(), std::size_t{options_.max_length} + 1);
      e.tokens.resize(most);
      e.labels.resize(most);
      e.tokens.shrink_to_fit();
      e.labels.shrink_to_fit();
      each.push_back(std::move(e));
    }
    return each;
  }

 private:
  struct Turn {
    RenderedPrompt before, after;  // the prompt, and the conversation up to the answer's end
  };
  Result<Turn> turn_of(std::size_t i) {
    auto before = shown(i, true), after = shown(i + 1, false);
    // a thought that the prompt would open is left to the answer, which may have none
    if (before && before->opens_thought) before = shown(i, false);
    if (!before) return failed(before);
    if (!after) return failed(after);
    return Turn{std::move(*before), std::move(*after)};
  }
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
