#include "base/text.h"

#include "base/utf8.h"

namespace rullama {

std::string quote(std::string_view text, std::size_t max_length) {
  std::string out = "'";
  std::size_t i = 0;
  while (i < text.size() && out.size() < max_length) {
    const std::size_t n = utf8::valid_length(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (n == 0 || byte < 0x20 || byte == 0x7f) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", byte);
      out += hex;
      i++;
    } else {
      out += text.substr(i, n);
      i += n;
    }
  }
  return out += i < text.size() ? "...'" : "'";
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  while (bytes >= 999.5 && unit < 4) bytes /= 1000, unit++;
  char text[40];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
  return text;
}

}  // namespace rullama
