// Text pieces joined without <format> (g++ 12 lacks it, and it is large in wasm).
#pragma once

#include <concepts>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

namespace rullama {

namespace detail {
inline void append(std::string& out, std::string_view s) { out += s; }
inline void append(std::string& out, char c) { out += c; }
template <std::integral I>
void append(std::string& out, I value) {
  if constexpr (std::same_as<I, bool>)  // not an overload: a string literal would rather be a bool than a string_view
    out += value ? "true" : "false";
  else
    out += std::to_string(value);
}
template <std::floating_point F>
void append(std::string& out, F value) {
  char text[40];
  const int n = std::snprintf(text, sizeof text, "%.6g", static_cast<double>(value));
  out.append(text, static_cast<std::size_t>(n));
}
}  // namespace detail

// cat("row ", 3, " of ", 8.5) == "row 3 of 8.5"
template <class... Parts>
[[nodiscard]] std::string cat(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

// "[2, 3, 4]"
template <class T, std::size_t N>
[[nodiscard]] std::string list(std::span<T, N> values) {
  std::string out = "[";
  for (std::size_t i = 0; i < values.size(); i++) {
    if (i) out += ", ";
    detail::append(out, values[i]);
  }
  return out += "]";
}

// Text from a file, fit for a message: control bytes and invalid UTF-8 become \xNN, long texts are cut.
[[nodiscard]] std::string quote(std::string_view text, std::size_t max_length = 80);

// "253.1 MB" (powers of 1000)
[[nodiscard]] std::string bytes_text(double bytes);

}  // namespace rullama
