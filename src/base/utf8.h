// UTF-8: lengths, decoding, repair.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rullama::utf8 {

// Bytes of the well-formed character at the start of `text` (1 to 4), or 0 if there is none
// (empty, stray continuation, overlong, surrogate, above U+10FFFF, cut short).
[[nodiscard]] std::size_t valid_length(std::string_view text);

// True if `text` is a proper prefix of some well-formed character: more bytes may complete it.
[[nodiscard]] bool incomplete(std::string_view text);

// The character at the start of `text`, which must have valid_length(text) > 0.
[[nodiscard]] std::uint32_t decode(std::string_view text);

void append(std::string& out, std::uint32_t code_point);

[[nodiscard]] bool valid(std::string_view text);

// Each maximal ill-formed piece becomes one U+FFFD (the Unicode standard's recommended practice).
[[nodiscard]] std::string repair(std::string_view text);

}  // namespace rullama::utf8
