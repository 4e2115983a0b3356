// Ctrl-C as something to ask about, instead of the end of the program.
#pragma once

#include <csignal>

namespace rullama::cli {

// While one lives, the first SIGINT is only noted; a second one before the first was dealt with ends the program.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  [[nodiscard]] bool interrupted() const;

 private:
  struct sigaction before_{};
};

}  // namespace rullama::cli
