// Collects a prompt as segments; what the two chat formats share.
#pragma once

#include <string>
#include <string_view>

#include "runtime/chat.h"

namespace rullama {

class PromptWriter {
 public:
  void control(std::string_view token) { prompt_.segments.push_back({std::string(token), true, answer_}); }
  void text(std::string_view text) {
    if (text.empty()) return;
    std::vector<Segment>& all = prompt_.segments;
    if (all.empty() || all.back().control || all.back().answer != answer_) all.push_back({"", false, answer_});
    all.back().text += text;
  }
  // What follows is said by the model in this message; nothing: it is said to the model.
  void answer(std::optional<std::size_t> message) { answer_ = message; }
  void opens_thought() { prompt_.opens_thought = true; }
  [[nodiscard]] RenderedPrompt take() { return std::move(prompt_); }

 private:
  std::optional<std::size_t> answer_;
  RenderedPrompt prompt_;
};

[[nodiscard]] Result<RenderedPrompt> render_gemma3(const std::vector<Message>& messages, const RenderOptions& options);
[[nodiscard]] Result<RenderedPrompt> render_gemma4(const std::vector<Message>& messages, const RenderOptions& options);

}  // namespace rullama
