// Signals: Ctrl-C as something to ask about, and files that are cut while they are used.
#pragma once

#include <csignal>
#include <cstdint>

namespace rullama::cli {

// While one lives, the first SIGINT is only noted; a second one before the first was dealt with ends the program. The
// same holds for SIGTERM (a shutdown, a batch system's time limit) if there is something to save.
class InterruptScope {
 public:
  enum class Catches : std::uint8_t { interrupt, interrupt_and_end };
  explicit InterruptScope(Catches what = Catches::interrupt);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  [[nodiscard]] bool interrupted() const;

 private:
  Catches what_;
  struct sigaction before_{}, before_end_{};
};

// From now on the program ends with a sentence and status 1 when a mapped file loses the bytes that are read of it.
void watch_mapped_files();

}  // namespace rullama::cli
