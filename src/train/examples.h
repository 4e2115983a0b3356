// Examples to learn from: token ids and which of them are to be predicted.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/tokenizer.h"
#include "runtime/chat.h"

namespace rullama {

struct Example {
  std::vector<Token> tokens;
  std::vector<Token> labels;  // as many: what should stand there, or TrainBatch::kNoTarget

  [[nodiscard]] std::size_t targets() const;  // labels that count: all but the first token's can
  // The tokens before the first one to be predicted: what the model is asked.
  [[nodiscard]] std::span<const Token> prompt() const;
};

struct ExampleOptions {
  std::optional<ChatFormat> format = {};  // that of `messages`
  bool prompts_too = false;               // learn the prompts as well as the answers
  bool end_texts = false;                 // completions and texts end with the end-of-text token
  std::uint32_t max_length = 1024;        // tokens of an example; the rest is cut off
};

struct Dataset {
  std::vector<Example> examples;
  std::size_t rows = 0, truncated = 0;  // of the file; examples that were cut
  std::size_t without_target = 0;       // left out since the part to be learnt was cut off whole
};

// A conversation: one example, or one for each answer where the model would see another prompt before that answer than
// the whole conversation shows (thoughts of earlier turns are dropped). Answers come after exactly the prompt that a
// chat would give. Nothing if there is no answer in it.
[[nodiscard]] Result<std::vector<Example>> examples_of(const std::vector<Message>& messages,
                                                       const std::vector<Value>& tools, const Tokenizer& tokenizer,
                                                       const ExampleOptions& options);

// JSON lines, each an object with "messages" (and perhaps "tools"), with "prompt" and "completion", with "text", or
// with "input_ids" and "labels" (-100: not to be predicted). Answers and completions are to be predicted, and all of a
// text. `file` is for messages: an error is "FILE:LINE: ...".
[[nodiscard]] Result<Dataset> examples_from_jsonl(std::string_view jsonl, std::string_view file,
                                                  const Tokenizer& tokenizer, const ExampleOptions& options);

}  // namespace rullama
