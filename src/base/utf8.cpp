#include "base/utf8.h"

namespace rullama::utf8 {
namespace {

struct Lead {
  std::size_t length;    // 0: not a lead byte
  unsigned char lo, hi;  // range of the second byte (Unicode 15, table 3-7)
};

Lead lead(unsigned char b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xc2) return {0, 0, 0};
  if (b < 0xe0) return {2, 0x80, 0xbf};
  if (b == 0xe0) return {3, 0xa0, 0xbf};
  if (b == 0xed) return {3, 0x80, 0x9f};
  if (b < 0xf0) return {3, 0x80, 0xbf};
  if (b == 0xf0) return {4, 0x90, 0xbf};
  if (b < 0xf4) return {4, 0x80, 0xbf};
  if (b == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// Bytes at the start that belong to one well-formed character, complete or not.
std::size_t matched(std::string_view text, std::size_t& wanted) {
  wanted = 0;
  if (text.empty()) return 0;
  const Lead l = lead(static_cast<unsigned char>(text[0]));
  wanted = l.length;
  if (l.length <= 1) return l.length;
  std::size_t n = 1;
  while (n < l.length && n < text.size()) {
    const auto b = static_cast<unsigned char>(text[n]);
    const bool ok = n == 1 ? (b >= l.lo && b <= l.hi) : (b >= 0x80 && b <= 0xbf);
    if (!ok) break;
    n++;
  }
  return n;
}

}  // namespace

std::size_t valid_length(std::string_view text) {
  std::size_t wanted = 0;
  const std::size_t n = matched(text, wanted);
  return n == wanted ? n : 0;
}

bool incomplete(std::string_view text) {
  std::size_t wanted = 0;
  const std::size_t n = matched(text, wanted);
  return n > 0 && n < wanted && n == text.size();
}

std::uint32_t decode(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  switch (valid_length(text)) {
    case 1: return at(0);
    case 2: return (at(0) & 0x1f) << 6 | (at(1) & 0x3f);
    case 3: return (at(0) & 0x0f) << 12 | (at(1) & 0x3f) << 6 | (at(2) & 0x3f);
    case 4: return (at(0) & 0x07) << 18 | (at(1) & 0x3f) << 12 | (at(2) & 0x3f) << 6 | (at(3) & 0x3f);
    default: return 0xfffd;
  }
}

void append(std::string& out, std::uint32_t c) {
  const auto put = [&](std::uint32_t b) { out += static_cast<char>(b); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6), put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18), put(0x80 | (c >> 12 & 0x3f)), put(0x80 | (c >> 6 & 0x3f)), put(0x80 | (c & 0x3f));
  }
}

bool valid(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = valid_length(text.substr(i));
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::string repair(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    std::size_t wanted = 0;
    const std::size_t n = matched(text.substr(i), wanted);
    if (n == wanted && n > 0) {
      out += text.substr(i, n);
      i += n;
    } else {
      append(out, 0xfffd);
      i += n > 0 ? n : 1;
    }
  }
  return out;
}

}  // namespace rullama::utf8
