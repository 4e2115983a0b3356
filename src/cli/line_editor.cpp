#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <sys/stat.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace rullama::cli {

struct LineEditor::Impl {
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::string prompt, history_file;
  bool interrupted = false;
};

namespace {

constexpr int kHistoryEntries = 1000;

// libedit splits its input into characters by the locale. Where that is plain C, text is UTF-8 all the same.
void use_utf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

LineEditor::LineEditor(std::string history_file) : impl_(std::make_unique<Impl>()) {
  use_utf8();
  impl_->history_file = std::move(history_file);
  HistEvent event{};
  impl_->history = history_init();
  history(impl_->history, &event, H_SETSIZE, kHistoryEntries);
  history(impl_->history, &event, H_SETUNIQUE, 1);
  if (!impl_->history_file.empty()) history(impl_->history, &event, H_LOAD, impl_->history_file.c_str());

  impl_->editor = el_init("rullama", stdin, stdout, stderr);
  EditLine* el = impl_->editor;
  el_set(el, EL_CLIENTDATA, impl_.get());
  using Prompt = char* (*)(EditLine*);
  const Prompt prompt = [](EditLine* e) {
    Impl* impl = nullptr;
    el_get(e, EL_CLIENTDATA, &impl);
    return impl->prompt.data();
  };
  el_set(el, EL_PROMPT, prompt);
  el_set(el, EL_EDITOR, "emacs");
  el_set(el, EL_HIST, history, impl_->history);
  // While a line is edited, Ctrl-C is a key like any other: it gives the line up.
  using Key = unsigned char (*)(EditLine*, int);
  const Key give_up = [](EditLine* e, int) -> unsigned char {
    Impl* impl = nullptr;
    el_get(e, EL_CLIENTDATA, &impl);
    impl->interrupted = true;
    return CC_NEWLINE;
  };
  el_set(el, EL_ADDFN, "give-up", "give the line up", give_up);
  el_set(el, EL_BIND, "^C", "give-up", nullptr);
  el_set(el, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  el_set(el, EL_SETTY, "-d", "-isig", nullptr);
}

LineEditor::~LineEditor() {
  el_end(impl_->editor);
  history_end(impl_->history);
}

LineEditor::Line LineEditor::read(std::string prompt) {
  impl_->prompt = std::move(prompt);
  impl_->interrupted = false;
  int length = 0;
  const char* text = el_gets(impl_->editor, &length);
  if (impl_->interrupted) {
    std::fputs("\n", stdout);
    return {Line::Kind::interrupted, {}};
  }
  if (!text || length <= 0) return {};
  Line line{Line::Kind::text, std::string(text, static_cast<std::size_t>(length))};
  while (line.text.ends_with('\n') || line.text.ends_with('\r')) line.text.pop_back();
  return line;
}

void LineEditor::remember(const std::string& entry) {
  if (entry.empty()) return;
  HistEvent event{};
  history(impl_->history, &event, H_ENTER, entry.c_str());
  if (impl_->history_file.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(impl_->history_file).parent_path(), ignored);
  const mode_t before = umask(077);  // what a person typed is nobody else's business
  history(impl_->history, &event, H_SAVE, impl_->history_file.c_str());
  umask(before);
}

std::string default_history_file() {
  if (const char* set = std::getenv("RULLAMA_HISTORY")) return set;
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state)
    return std::string(state) + "/rullama/history";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.local/state/rullama/history" : "";
}

}  // namespace rullama::cli
