#include "gpu/wgsl.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace rullama::gpu {
namespace {

constexpr std::string_view kFor = "//@for ", kEnd = "//@end";

// The first line of `text`, which is taken from it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end);
  return line;
}

std::string_view trimmed(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  while (line.ends_with('\n') || line.ends_with(' ')) line.remove_suffix(1);
  return line;
}

// The lines up to the end that belongs to the loop, which are taken from `text` with it.
std::optional<std::string_view> take_loop(std::string_view& text) {
  std::string_view rest = text;
  for (std::size_t depth = 1; !rest.empty();) {
    const std::string_view line = take_line(rest);
    if (trimmed(line).starts_with(kFor)) depth++;
    if (trimmed(line) == kEnd && --depth == 0) {
      const std::string_view lines = text.substr(0, static_cast<std::size_t>(line.data() - text.data()));
      text = rest;
      return lines;
    }
  }
  return {};
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string all;
  for (std::size_t at; (at = text.find(what)) != std::string_view::npos; text.remove_prefix(at + what.size()))
    all.append(text.substr(0, at)).append(by);
  return all.append(text);
}

}  // namespace

std::string Wgsl::written_out(std::string_view lines) const {
  const auto count_of = [&](std::string_view word) -> std::optional<std::uint32_t> {
    std::uint32_t number = 0;
    const char* end = word.data() + word.size();
    if (std::from_chars(word.data(), end, number).ptr == end && !word.empty()) return number;
    const auto it = std::ranges::find(counts_, word, [](const auto& c) -> std::string_view { return c.first; });
    return it == counts_.end() ? std::nullopt : std::optional(it->second);
  };
  std::string all;
  while (!lines.empty()) {
    const std::string_view line = take_line(lines);
    std::string_view loop = trimmed(line);
    all += line;
    if (!loop.starts_with(kFor)) continue;
    loop.remove_prefix(kFor.size());
    const std::size_t in = loop.find(" in ");
    if (in == std::string_view::npos) continue;
    const auto count = count_of(loop.substr(in + 4));
    const auto body = count ? take_loop(lines) : std::nullopt;
    if (!body) continue;
    all.resize(all.size() - line.size());
    const std::string name = cat("$", loop.substr(0, in));
    for (std::uint32_t i = 0; i < *count; i++) all += written_out(replaced(*body, name, cat(i)));
  }
  return all;
}

}  // namespace rullama::gpu
