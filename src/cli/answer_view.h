// Shows an answer while it is generated: content on stdout, thoughts dimmed on a terminal and hidden elsewhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "cli/common.h"
#include "runtime/answer.h"

namespace rullama::cli {

class AnswerView {
 public:
  // `quiet`: collect only.
  AnswerView(const Prompt& prompt, bool quiet);

  void push(std::string_view text);
  // The rest, and a newline on a terminal.
  void finish();
  [[nodiscard]] const Answer& answer() const { return all_; }

 private:
  void show(Answer&& part);
  void put_visible(std::string_view text);
  void dim(bool on);

  std::optional<AnswerParser> parser_;
  bool quiet_, terminal_;
  bool dimmed_ = false, line_open_ = false;
  Answer all_;
};

}  // namespace rullama::cli
