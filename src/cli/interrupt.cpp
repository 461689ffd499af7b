#include "cli/interrupt.h"

#include <csignal>

namespace lily {
namespace {

volatile std::sig_atomic_t pending_interrupt = 0;

void on_interrupt(int /*signal*/) {
  pending_interrupt = 1;
}

void handle_interrupts_with(void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupt::Interrupt() {
  clear();
  handle_interrupts_with(on_interrupt);
}

Interrupt::~Interrupt() {
  handle_interrupts_with(SIG_DFL);
}

bool Interrupt::pending() const {
  return pending_interrupt != 0;
}

void Interrupt::clear() {
  pending_interrupt = 0;
}

Error interrupted() {
  return fail(ErrorCode::kCancelled, "interrupted");
}

}  // namespace lily
