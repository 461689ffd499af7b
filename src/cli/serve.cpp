// lily serve: an engine behind the HTTP server.
#include "server/server.h"

#include <algorithm>

#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/console.h"
#include "cli/open.h"

namespace lily {
namespace {

// An IPv6 address stands in brackets in a URL.
std::string url(std::string_view scheme, const HttpAddress& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? fmt::format("[{}]", address.host) : address.host;
  return fmt::format("{}://{}:{}", scheme, host, address.port);
}

const Command& serve_command() {
  return *std::ranges::find(commands(), "serve", &Command::name);
}

Result<std::shared_ptr<const TlsIdentity>> read_identity(const Options& options) {
  if (options.tls_cert.empty() && options.tls_key.empty()) return std::shared_ptr<const TlsIdentity>();
  if (options.tls_cert.empty() || options.tls_key.empty()) {
    return fail(ErrorCode::kInvalidArgument, "expected --tls-cert and --tls-key together, found only {}",
                options.tls_key.empty() ? "--tls-cert" : "--tls-key");
  }
  return TlsIdentity::load(options.tls_cert, options.tls_key);
}

}  // namespace

Result<void> run_serve(const Options& options) {
  if (options.print_config) return console::print(config_text(serve_command(), options));
  ServerOptions server;
  server.names = split_list(options.alias);
  server.access.origins = split_list(options.allow_origin);
  if (!options.api_key_file.empty()) {
    LILY_TRY(server.access.keys, read_api_keys(options.api_key_file));
  }
  LILY_TRY(server.tls, read_identity(options));
  LILY_TRY(const auto engine, open_engine(options, options.cache_mib << 20));
  server.address = {.host = options.host, .port = static_cast<std::uint16_t>(options.port)};
  server.drain = std::chrono::seconds(options.drain_seconds);
  Result<void> announced;
  server.on_ready = [&](const HttpAddress& address) {
    announced = console::print(fmt::format("listening on {}\n", url(server.tls ? "https" : "http", address)));
  };
  LILY_TRY_VOID(run_server(*engine, server));
  LILY_TRY_VOID(engine->save_cache());
  return announced;
}

}  // namespace lily
