// Signals: Ctrl-C as something to ask about, and files that are cut while they are used.
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

// From now on the program ends with a sentence and status 1 when a mapped file loses the bytes that are read of it.
void watch_mapped_files();

}  // namespace rullama::cli
