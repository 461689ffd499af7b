#include "server/server.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>

#include "base/log.h"
#include "server/access.h"
#include "server/chat_handler.h"
#include "server/metrics.h"
#include "server/routes.h"

namespace lily {
namespace {

// How long answers that the engine has finished may take to reach their clients.
constexpr std::chrono::milliseconds kLastBytes{5'000};

// A signal handler may do little more than write to a pipe.
std::array<int, 2> signal_pipe{-1, -1};

void on_signal(int signal) {
  const char byte = static_cast<char>(signal);
  const auto written = ::write(signal_pipe[1], &byte, 1);
  static_cast<void>(written);
}

// SIGTERM and SIGINT become a byte in the pipe, once each: the second one has its usual effect.
Result<void> catch_signals() {
  if (::pipe(signal_pipe.data()) != 0) return fail(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGTERM, SIGINT}) {
    if (::sigaction(signal, &action, nullptr) != 0)
      return fail(ErrorCode::kIo, "sigaction: {}", std::strerror(errno));
  }
  return {};
}

void wait_for_signal() {
  char byte = 0;
  while (::read(signal_pipe[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

Result<void> check_model(const LoadedModel& model) {
  if (model.tokenizer() == nullptr) {
    return fail(ErrorCode::kUnsupported, "{}: cannot serve chat without a tokenizer.json", model.name());
  }
  if (!model.chat_template().ok()) return Error(model.chat_template().error()).in(model.name());
  return {};
}

}  // namespace

Result<void> run_server(Engine& engine, const ServerOptions& options) {
  LILY_TRY_VOID(check_model(engine.model()));
  ServedModel served{options.names, static_cast<std::int64_t>(std::time(nullptr))};
  if (served.names.empty()) served.names.push_back(engine.model().name());
  const ChatHandler chat(engine, served.names.front());
  Metrics metrics;
  std::atomic<bool> draining = false;
  LILY_TRY_VOID(catch_signals());
  LILY_TRY(const auto http,
           HttpServer::start({.address = options.address,
                              .limits = options.limits,
                              .gate = Access(options.access, options.address.host),
                              .tls = options.tls},
                             make_routes(engine, chat, metrics, std::move(served), draining)));
  engine.observe([&](FinishReason reason, const GenerationUsage& usage) { metrics.record(reason, usage); });
  if (options.on_ready) options.on_ready({options.address.host, http->port()});

  wait_for_signal();
  log::info("shutting down: answers under way have {} ms", options.drain.count());
  draining = true;
  http->drain();
  engine.drain(options.drain);
  http->stop(kLastBytes);
  engine.observe({});
  return {};
}

}  // namespace lily
