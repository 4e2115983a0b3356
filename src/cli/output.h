// What the program writes: results to stdout, everything else to stderr, progress to a terminal only.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rullama::cli {

using Json = nlohmann::ordered_json;

enum class Stream : int { in = 0, out = 1, err = 2 };
[[nodiscard]] bool is_terminal(Stream stream);

// To stdout. Failures show at the end: stdout_ok().
void put(std::string_view text);
void put_now(std::string_view text);  // and flushes
void put_json(const Json& value);     // as one line
[[nodiscard]] bool stdout_ok();

// "rullama: SENTENCE" on stderr.
void note(std::string_view sentence);

// The same without the name of the program, for what comes in several lines.
void note_line(std::string_view line);

// Without the control characters by which a text could steer a terminal; newlines and tabs stay.
[[nodiscard]] std::string without_controls(std::string_view text);

// Columns padded to the same width; numbers right-aligned where `right` says so.
void put_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right = {});

[[nodiscard]] std::string fixed(double value, int digits);  // "12.34"

// A line on stderr that is drawn again and again. For a terminal only.
class StatusLine {
 public:
  StatusLine() = default;
  ~StatusLine() { keep(); }
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  void show(std::string_view text);
  void keep();  // what is shown stays, the next one comes below

 private:
  bool open_ = false;
};

// A bar on stderr, if that is a terminal and the work takes long enough to be worth one.
class ProgressBar {
 public:
  explicit ProgressBar(std::string_view what) : what_(what) {}
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void show(std::uint64_t done, std::uint64_t total);
  void hide();

 private:
  std::string what_;
  double started_ = 0, drawn_ = 0;  // seconds
  bool visible_ = false;
};

}  // namespace rullama::cli
