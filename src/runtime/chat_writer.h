// Collects a prompt as segments; what the two chat formats share.
#pragma once

#include <string>
#include <string_view>

#include "runtime/chat.h"

namespace rullama {

class PromptWriter {
 public:
  void control(std::string_view token) { prompt_.segments.push_back({std::string(token), true}); }
  void text(std::string_view text) {
    if (text.empty()) return;
    if (prompt_.segments.empty() || prompt_.segments.back().control) prompt_.segments.push_back({});
    prompt_.segments.back().text += text;
  }
  void opens_thought() { prompt_.opens_thought = true; }
  [[nodiscard]] RenderedPrompt take() { return std::move(prompt_); }

 private:
  RenderedPrompt prompt_;
};

[[nodiscard]] Result<RenderedPrompt> render_gemma3(const std::vector<Message>& messages, const RenderOptions& options);
[[nodiscard]] Result<RenderedPrompt> render_gemma4(const std::vector<Message>& messages, const RenderOptions& options);

}  // namespace rullama
