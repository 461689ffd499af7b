// `lily serve`: the endpoints in front of one engine, from the first connection to the last.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/access.h"
#include "server/http_server.h"

namespace lily {

struct ServerOptions {
  /// What the model is called: the first name stands in answers, all are listed. Empty: the checkpoint's
  /// name.
  std::vector<std::string> names;
  HttpAddress address;
  HttpLimits limits;
  AccessOptions access;
  std::shared_ptr<const TlsIdentity> tls;  ///< null: plain HTTP
  /// How long answers under way may go on after SIGTERM or SIGINT.
  std::chrono::milliseconds drain{30'000};
  /// Called once, when connections are accepted: port 0 has become a real one.
  std::function<void(const HttpAddress&)> on_ready;
};

/// Serves until SIGTERM or SIGINT, then refuses new requests, finishes those under way (a second signal ends
/// the process at once) and returns. kUnsupported for a model without tokenizer or chat template, kIo or
/// kInvalidArgument for an address that cannot be listened on. Call it once in a process: it takes over the
/// signals.
Result<void> run_server(Engine& engine, const ServerOptions& options);

}  // namespace lily
