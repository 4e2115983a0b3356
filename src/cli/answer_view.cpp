#include "cli/answer_view.h"

#include "base/text.h"
#include "cli/output.h"

namespace rullama::cli {

AnswerView::AnswerView(const Prompt& prompt, bool quiet) : quiet_(quiet), terminal_(is_terminal(Stream::out)) {
  if (prompt.format) parser_.emplace(*prompt.format, prompt.opens_thought);
}

void AnswerView::push(std::string_view text) {
  if (parser_) return show(parser_->push(text));
  Answer part;
  part.content = text;
  show(std::move(part));
}

void AnswerView::finish() {
  if (parser_) show(parser_->finish());
  dim(false);
  if (!quiet_ && terminal_ && line_open_) put("\n");
  if (!quiet_ && !terminal_) put("\n");
  if (quiet_) return;
  put_now("");
  for (const ToolCall& call : all_.calls)
    note(cat("the model called the tool ", quote(call.name), ", and there are no tools here"));
}

void AnswerView::show(Answer&& part) {
  if (!quiet_) {
    if (terminal_ && !part.thinking.empty()) {
      dim(true);
      put_visible(part.thinking);
    }
    if (!part.content.empty()) {
      if (dimmed_) put_visible("\n\n");
      dim(false);
      put_visible(part.content);
    }
    put_now("");
  }
  all_.append(std::move(part));
}

void AnswerView::put_visible(std::string_view text) {
  if (text.empty()) return;
  put(terminal_ ? without_controls(text) : std::string(text));
  line_open_ = text.back() != '\n';
}

void AnswerView::dim(bool on) {
  if (on == dimmed_) return;
  dimmed_ = on;
  put(on ? "\033[2m" : "\033[0m");
}

}  // namespace rullama::cli
