// lily serve: an engine behind the HTTP server.
#include "server/server.h"

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/open.h"

namespace lily {
namespace {

// An IPv6 address stands in brackets in a URL.
std::string url(const HttpAddress& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? fmt::format("[{}]", address.host) : address.host;
  return fmt::format("http://{}:{}", host, address.port);
}

}  // namespace

Result<void> run_serve(const Options& options) {
  LILY_TRY(const auto engine, open_engine(options, options.cache_mib << 20));
  ServerOptions server;
  server.address = {.host = options.host, .port = static_cast<std::uint16_t>(options.port)};
  server.drain = std::chrono::seconds(options.drain_seconds);
  Result<void> announced;
  server.on_ready = [&](const HttpAddress& address) {
    announced = console::print(fmt::format("listening on {}\n", url(address)));
  };
  LILY_TRY_VOID(run_server(*engine, server));
  LILY_TRY_VOID(engine->save_cache());
  return announced;
}

}  // namespace lily
