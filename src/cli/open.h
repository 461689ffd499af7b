// Opening what the options name, with a line on the terminal while it takes.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "cli/options.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lily {

/// `cache_bytes`: of the prefix cache.
Result<std::unique_ptr<Engine>> open_engine(const Options& options, std::int64_t cache_bytes);
Result<std::unique_ptr<LoadedModel>> open_model(const ModelOptions& options);

/// The tokenizer of a model that is not opened otherwise.
Result<Tokenizer> open_tokenizer(const std::string& model);

}  // namespace lily
