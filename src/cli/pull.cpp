// lily pull: a checkpoint from a hub into the local cache.
#include "hub/pull.h"

#include <optional>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"

namespace lily {

Result<void> run_pull(const Options& options) {
  if (options.repository.empty()) {
    return fail(ErrorCode::kInvalidArgument, "pull: expected the model (lily pull ORG/NAME), found none");
  }
  PullOptions pulling{.hub = {},
                      .repository = options.repository,
                      .revision = options.revision,
                      .connections = static_cast<int>(options.connections)};
  LILY_TRY(pulling.hub, HubEnvironment::read());
  const Interrupt interrupt;
  std::optional<Progress> progress;
  const auto snapshot = pull(pulling, [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("pull", ProgressUnit::kBytes, total);
    progress->update(done);
    return !interrupt.pending();
  });
  progress.reset();
  if (!snapshot.ok()) return snapshot.error();
  return console::print(fmt::format("{}\n", snapshot->string()));
}

}  // namespace lily
