// Builds the text of a kernel from pieces. WGSL lets declarations stand in any order, so a source is a list of
// constants and files; no preprocessor is needed: variants are `const` values and `if (CONST)`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"

namespace rullama::gpu {

// The text of an embedded file by its path below src/ ("ops/rms_norm/rms_norm.wgsl"). The build embeds every
// *.wgsl; an unknown path gives an empty text and fails in kernel creation.
[[nodiscard]] std::string_view wgsl_file(std::string_view path);

class Wgsl {
 public:
  explicit Wgsl(std::string_view path) { file(path); }
  Wgsl& enable(std::string_view extension) { return head_ += cat("enable ", extension, ";\n"), *this; }
  // "diagnostic(off, NAME)", which has to stand before all else
  Wgsl& directive(std::string_view text) { return head_ += cat(text, ";\n"), *this; }
  Wgsl& file(std::string_view path) { return body_ += wgsl_file(path), body_ += '\n', *this; }
  Wgsl& text(std::string_view wgsl) { return body_ += wgsl, body_ += '\n', *this; }
  Wgsl& constant(std::string_view name, std::uint32_t value) {
    return consts_ += cat("const ", name, ": u32 = ", value, "u;\n"), *this;
  }
  Wgsl& constant(std::string_view name, bool value) {
    return consts_ += cat("const ", name, ": bool = ", value, ";\n"), *this;
  }
  Wgsl& alias(std::string_view name, std::string_view type) {
    return consts_ += cat("alias ", name, " = ", type, ";\n"), *this;
  }
  [[nodiscard]] std::string str() const { return head_ + consts_ + body_; }

 private:
  std::string head_, consts_, body_;
};

}  // namespace rullama::gpu
