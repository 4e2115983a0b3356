#include "cli/interrupt.h"

#include <unistd.h>

namespace rullama::cli {

namespace {

volatile std::sig_atomic_t signalled = 0;  // a signal handler has no other way to say something

void on_interrupt(int) {
  if (signalled) _exit(130);
  signalled = 1;
}

void on_lost_page(int) {
  static constexpr char said[] = "rullama: the model's file became shorter, or its disk failed, while it was in use\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, said, sizeof said - 1);
  _exit(1);
}

}  // namespace

InterruptScope::InterruptScope(Catches what) : what_(what) {
  signalled = 0;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
  if (what_ == Catches::interrupt_and_end) sigaction(SIGTERM, &action, &before_end_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &before_, nullptr);
  if (what_ == Catches::interrupt_and_end) sigaction(SIGTERM, &before_end_, nullptr);
}

bool InterruptScope::interrupted() const { return signalled != 0; }

void watch_mapped_files() {
  struct sigaction action{};
  action.sa_handler = on_lost_page;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace rullama::cli
