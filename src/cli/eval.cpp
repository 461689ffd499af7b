// lily eval: perplexity of texts, and the distance to another backend, checkpoint or server.
#include <algorithm>
#include <functional>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/eval_report.h"
#include "cli/eval_server.h"
#include "cli/eval_texts.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/token_input.h"

namespace lily {
namespace {

// "reference", or "cpu:exact"; with its own kind of K/V, so that --kv-type can be measured.
Result<BackendOptions> parse_backend(const std::string& name, const BackendOptions& like) {
  BackendOptions backend = like;
  const std::size_t colon = name.find(':');
  backend.name = name.substr(0, colon);
  backend.exact = colon != std::string::npos;
  backend.kv_type = "auto";
  if (backend.exact && name.substr(colon) != ":exact") {
    return fail(ErrorCode::kInvalidArgument,
                "--against: expected a backend's name, cpu:exact or a URL, found '{}'", name);
  }
  return backend;
}

bool is_url(const std::string& text) {
  return text.find("://") != std::string::npos;
}

// What the model is compared with: another one in this process, a server, or nothing.
struct Other {
  std::unique_ptr<LoadedModel> model = {};
  std::optional<ServedModel> server = {};

  [[nodiscard]] std::string name() const {
    if (server) return server->name();
    return model ? model->name() : "";
  }
  [[nodiscard]] std::string backend() const {
    if (server) return server->address();
    return model ? model->backend().description() : "";
  }
};

Result<Other> open_server(const Options& options, const EvalTexts& texts, const LoadedModel& model) {
  if (texts.prompts.empty() || options.continuation == 0 || !options.against_model.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        "--against {}: a server is asked to continue --prompts; expected them, --continue above 0 and no "
        "--against-model",
        options.against);
  }
  LILY_TRY(ApiClient client, ApiClient::create(options.against, options.api_key_file));
  LILY_TRY(const Tokenizer* tokenizer, require_tokenizer(model));
  LILY_TRY(ServedModel server, ServedModel::create(std::move(client), *tokenizer));
  return Other{.server = std::move(server)};
}

Result<Other> open_other(const Options& options, const EvalTexts& texts, ModelOptions opening,
                         const LoadedModel& model) {
  if (options.against.empty() && options.against_model.empty()) return Other{};
  if (is_url(options.against)) return open_server(options, texts, model);
  if (!options.against.empty()) {
    LILY_TRY(opening.backend, parse_backend(options.against, opening.backend));
  }
  if (!options.against_model.empty()) opening.model = options.against_model;
  LILY_TRY(auto other, open_model(opening));
  return Other{.model = std::move(other)};
}

// The other side continues every prompt; the model reads along.
Result<ContinuationDistance> compare_continuations(const Options& options, const EvalTexts& texts,
                                                   LoadedModel& model, const Other& other,
                                                   const std::function<bool(std::int64_t)>& progress) {
  ContinuationDistance distance;
  std::int64_t done = 0;
  for (std::size_t i = 0; i < texts.prompts.size(); ++i) {
    const std::vector<TokenId>& ids = texts.ids[i];
    auto steps = other.server
                     ? other.server->continue_text(texts.prompts[i], std::ssize(ids), options.continuation)
                     : continue_greedily(*other.model, ids, options.continuation);
    if (!steps.ok()) return std::move(steps).error();
    LILY_TRY_VOID(compare_continuation(model, ids, *steps, distance));
    done += options.continuation;
    if (!progress(done)) return interrupted();
  }
  return distance;
}

}  // namespace

Result<void> run_eval(const Options& options) {
  LILY_TRY(const EvalTexts texts, read_eval_texts(options));
  const bool continues = !texts.prompts.empty() && options.continuation > 0;
  ModelOptions opening = model_options(options);
  opening.max_seq = std::max(std::min(texts.longest(), options.context),
                             continues ? texts.longest() + options.continuation : 0);
  LILY_TRY(const auto model, open_model(opening));
  for (const auto& ids : texts.ids) LILY_TRY_VOID(check_ids(ids, model->shapes().vocab));
  LILY_TRY(const Other other, open_other(options, texts, opening, *model));

  const Interrupt interrupt;
  const bool compares = continues && !other.name().empty();
  const std::int64_t continued = compares ? std::ssize(texts.prompts) * options.continuation : 0;
  Progress progress("eval", ProgressUnit::kTokens, texts.tokens() + continued);
  const EvaluationOptions evaluation{
      .context = options.context, .chunk = options.chunk, .progress = [&](std::int64_t done) {
        progress.update(done);
        return !interrupt.pending();
      }};
  EvalReport report{.model = model->name(),
                    .backend = model->backend().description(),
                    .other_model = other.name(),
                    .other_backend = other.backend()};
  LILY_TRY(report.evaluation, evaluate(*model, other.model.get(), texts.ids, evaluation));
  if (compares) {
    LILY_TRY(report.continuation,
             compare_continuations(options, texts, *model, other, [&](std::int64_t done) {
               return evaluation.progress(texts.tokens() + done);
             }));
  }
  progress.clear();
  return console::print(options.json ? eval_json(report) : eval_text(report));
}

}  // namespace lily
