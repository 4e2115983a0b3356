// A line from a terminal, with editing and history (libedit).
#pragma once

#include <memory>
#include <string>

namespace rullama::cli {

class LineEditor {
 public:
  struct Line {
    enum class Kind { text, interrupted, end };  // end: Ctrl-D, or the terminal is gone
    Kind kind = Kind::end;
    std::string text;  // without its newline
  };

  // `history_file` keeps entries between runs; empty: none.
  explicit LineEditor(std::string history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  [[nodiscard]] Line read(std::string prompt);
  void remember(const std::string& entry);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// $RULLAMA_HISTORY if set (may be empty: no history), else a file in the user's state folder.
[[nodiscard]] std::string default_history_file();

}  // namespace rullama::cli
