#include "cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace rullama::cli {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void write(std::FILE* to, std::string_view text) { std::fwrite(text.data(), 1, text.size(), to); }

// Characters rather than bytes, which is close enough to columns.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

bool is_terminal(Stream stream) { return isatty(static_cast<int>(stream)) == 1; }

void put(std::string_view text) { write(stdout, text); }

void put_now(std::string_view text) {
  put(text);
  std::fflush(stdout);
}

void put_json(const Json& value) { put(value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

bool stdout_ok() { return std::fflush(stdout) == 0 && !std::ferror(stdout); }

void note(std::string_view sentence) {
  std::fflush(stdout);
  write(stderr, cat("rullama: ", sentence, "\n"));
}

void note_line(std::string_view line) {
  std::fflush(stdout);
  write(stderr, cat(line, "\n"));
}

void StatusLine::show(std::string_view text) {
  write(stderr, cat("\r", text, "\033[K"));
  open_ = true;
}

void StatusLine::keep() {
  if (open_) write(stderr, "\n");
  open_ = false;
}

std::string without_controls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); i++) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) continue;
    // U+0080 to U+009F, of which some terminals take U+009B like ESC [
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      i++;
      continue;
    }
    out += text[i];
  }
  return out;
}

void put_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& right) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], width(row[i]));
  }
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); i++) {
      const std::string pad(widths[i] - width(row[i]), ' ');
      const bool to_right = i < right.size() && right[i];
      if (i) line += "  ";
      line += to_right ? pad + row[i] : row[i] + pad;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    put(line + "\n");
  }
}

std::string fixed(double value, int digits) {
  char text[64];
  const int n = std::snprintf(text, sizeof text, "%.*f", digits, value);
  return {text, static_cast<std::size_t>(n)};
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  constexpr double kPatience = 0.3, kInterval = 0.1;
  constexpr int kColumns = 40;
  if (!is_terminal(Stream::err) || total == 0) return;
  const double t = now();
  if (started_ == 0) started_ = t;
  if (t - started_ < kPatience || (t - drawn_ < kInterval && done < total)) return;
  drawn_ = t;
  visible_ = true;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  std::string bar(static_cast<std::size_t>(share * kColumns), '#');
  bar.resize(kColumns, ' ');
  write(stderr, cat("\r", what_, " [", bar, "] ", static_cast<int>(100 * share), " %  ",
                    bytes_text(static_cast<double>(done)), " of ", bytes_text(static_cast<double>(total)), "\033[K"));
}

void ProgressBar::hide() {
  if (visible_) write(stderr, "\r\033[K");
  visible_ = false;
}

ProgressBar::~ProgressBar() { hide(); }

}  // namespace rullama::cli
