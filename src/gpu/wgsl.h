// Builds the text of a kernel from pieces. WGSL lets declarations stand in any order, so a source is a list of
// constants and files, and variants are `const` values and `if (CONST)`. Only loops that must not be loops (over
// matrices, over private arrays that have to be registers) are written out, line by line:
//   //@for i in COUNT      a number, or a constant of the host
//   sums_$i = load($iu);   $i: 0, 1, ...
//   //@end
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
    counts_.emplace_back(name, value);
    return consts_ += cat("const ", name, ": u32 = ", value, "u;\n"), *this;
  }
  Wgsl& constant(std::string_view name, bool value) {
    return consts_ += cat("const ", name, ": bool = ", value, ";\n"), *this;
  }
  Wgsl& alias(std::string_view name, std::string_view type) {
    return consts_ += cat("alias ", name, " = ", type, ";\n"), *this;
  }
  // A loop whose count is not known, or that has no end, stays as it is: a comment, and names that no compiler takes.
  [[nodiscard]] std::string str() const { return head_ + consts_ + written_out(body_); }

 private:
  [[nodiscard]] std::string written_out(std::string_view lines) const;
  std::vector<std::pair<std::string, std::uint32_t>> counts_;
  std::string head_, consts_, body_;
};

}  // namespace rullama::gpu
