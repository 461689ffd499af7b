#include "cli/open.h"

#include "cli/console.h"

namespace lily {

Result<std::unique_ptr<Engine>> open_engine(const Options& options, std::int64_t cache_bytes) {
  const console::Status status("loading " + options.model);
  ModelOptions model = model_options(options);
  model.cache_bytes = cache_bytes;
  return Engine::open({.model = std::move(model),
                       .max_queue = options.max_queue,
                       .timeout = std::chrono::seconds(options.request_timeout),
                       .cache_file = options.cache_file});
}

Result<std::unique_ptr<LoadedModel>> open_model(const ModelOptions& options) {
  const console::Status status("loading " + options.model);
  return LoadedModel::open(options);
}

Result<Tokenizer> open_tokenizer(const std::string& model) {
  LILY_TRY(const auto files, ModelFiles::open(model));
  LILY_TRY(const std::string_view text, files->text("tokenizer.json"));
  auto tokenizer = Tokenizer::parse(text);
  if (!tokenizer.ok()) return std::move(tokenizer).error().in(files->label() + "/tokenizer.json");
  return tokenizer;
}

}  // namespace lily
