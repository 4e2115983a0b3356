#include "cli/interrupt.h"

#include <unistd.h>

namespace rullama::cli {

namespace {

volatile std::sig_atomic_t signalled = 0;  // a signal handler has no other way to say something

void on_interrupt(int) {
  if (signalled) _exit(130);
  signalled = 1;
}

}  // namespace

InterruptScope::InterruptScope() {
  signalled = 0;
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &before_, nullptr); }

bool InterruptScope::interrupted() const { return signalled != 0; }

}  // namespace rullama::cli
