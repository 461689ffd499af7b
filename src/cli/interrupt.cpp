#include "cli/interrupt.h"

namespace lily {
namespace {

volatile std::sig_atomic_t pending_interrupt = 0;

void on_interrupt(int signal) {
  if (pending_interrupt != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  pending_interrupt = 1;
}

}  // namespace

Interrupt::Interrupt() {
  clear();
  struct sigaction action{};
  action.sa_handler = on_interrupt;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &previous_);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &previous_, nullptr);
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
