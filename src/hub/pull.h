// A checkpoint from a hub into the local cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"
#include "checkpoint/write_status.h"
#include "hub/cache.h"

namespace lily {

struct PullOptions {
  HubEnvironment hub;
  std::string repository;  ///< ORG/NAME
  std::string revision = "main";
  int connections = 8;
};

/// Fetches what the cache lacks of config, tokenizer, template and weights, by ranges over several
/// connections, checks every file's digest, and only then makes the snapshot whose path it returns: before
/// that nothing looks like a model. An interrupted run is gone on with. kExhausted when the disk has not
/// enough room.
Result<std::filesystem::path> pull(const PullOptions& options, const WriteProgress& progress = {});

}  // namespace lily
