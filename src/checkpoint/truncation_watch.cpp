#include "checkpoint/truncation_watch.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

namespace lily {
namespace {

// The handler may run at any moment, so it reads a table that never moves: begin is set last and cleared
// first.
struct Watched {
  std::atomic<std::uintptr_t> begin = 0;  // 0: free
  std::atomic<std::uintptr_t> end = 0;
  std::array<char, 1024> message{};
};
std::array<Watched, 256> watched_files;
std::mutex table_mutex;

const Watched* find(std::uintptr_t address) {
  for (const Watched& file : watched_files) {
    const std::uintptr_t begin = file.begin.load(std::memory_order_acquire);
    if (begin != 0 && address >= begin && address < file.end.load(std::memory_order_relaxed)) return &file;
  }
  return nullptr;
}

extern "C" void on_sigbus(int signal_number, siginfo_t* info, void* /*context*/) {
  const Watched* file = find(reinterpret_cast<std::uintptr_t>(info->si_addr));
  if (file == nullptr) {
    signal(signal_number,
           SIG_DFL);  // not ours: the faulting instruction runs again and dies as it would have
    return;
  }
  // Threads that compute together fault together: the first one speaks and ends the program, the others wait
  // for it.
  static std::atomic_flag spoken;
  while (spoken.test_and_set()) pause();
  const char* message = file->message.data();
  [[maybe_unused]] const auto written = write(STDERR_FILENO, message, std::strlen(message));
  _exit(1);
}

void install_handler() {
  struct sigaction current{};
  if (sigaction(SIGBUS, nullptr, &current) != 0 || (current.sa_flags & SA_SIGINFO) != 0 ||
      current.sa_handler != SIG_DFL) {
    return;
  }
  struct sigaction action{};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace

TruncationWatch::TruncationWatch(const std::filesystem::path& path, std::span<const std::byte> mapped) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  if (mapped.empty()) return;
  const std::string message = "lily: " + path.string() + ": cut short while it was in use\n";
  const std::lock_guard lock(table_mutex);
  for (std::size_t i = 0; i < watched_files.size(); ++i) {
    Watched& file = watched_files[i];
    if (file.begin != 0) continue;
    file.message.fill('\0');
    message.copy(file.message.data(), file.message.size() - 1);
    file.end = reinterpret_cast<std::uintptr_t>(mapped.data() + mapped.size());
    file.begin.store(reinterpret_cast<std::uintptr_t>(mapped.data()), std::memory_order_release);
    place_ = static_cast<int>(i);
    return;
  }
}

TruncationWatch::TruncationWatch(TruncationWatch&& other) noexcept
    : place_(std::exchange(other.place_, -1)) {}

TruncationWatch::~TruncationWatch() {
  if (place_ < 0) return;
  const std::lock_guard lock(table_mutex);
  watched_files[static_cast<std::size_t>(place_)].begin = 0;
}

}  // namespace lily
