// The endpoints, each a route from HTTP to the protocol that answers it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/chat_handler.h"
#include "server/http_server.h"
#include "server/metrics.h"

namespace lily {

struct ServedModel {
  std::vector<std::string> names;  ///< the first is what answers say; not empty
  std::int64_t created = 0;
};

/// All arguments outlive the routes. `draining`: the server shuts down.
[[nodiscard]] std::vector<HttpRoute> make_routes(const Engine& engine, const ChatHandler& chat,
                                                 const Metrics& metrics, ServedModel served,
                                                 const std::atomic<bool>& draining);

}  // namespace lily
