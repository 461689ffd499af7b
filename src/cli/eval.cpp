// lily eval: perplexity of a text, and the distance to another backend or checkpoint.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mmap.h"
#include "base/npy.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "cli/open.h"
#include "cli/prompt.h"
#include "cli/token_input.h"
#include "engine/evaluate.h"

namespace lily {
namespace {

Result<std::string> read_text(const std::string& path) {
  if (path == "-") return console::read_stdin();
  LILY_TRY(const MappedFile file, MappedFile::open(path));
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Result<std::vector<TokenId>> text_ids(const Options& options) {
  if (options.text_file.empty() == options.ids_file.empty()) {
    return fail(ErrorCode::kInvalidArgument, "eval: expected one of --text F and --ids-file F.npy, found {}",
                options.text_file.empty() ? "neither" : "both");
  }
  if (!options.ids_file.empty()) return read_npy_ids(options.ids_file);
  LILY_TRY(const std::string text, read_text(options.text_file));
  LILY_TRY(const Tokenizer tokenizer, open_tokenizer(options.model));
  return tokenizer.encode(text);
}

// "reference", or "cpu:exact"; with its own kind of K/V, so that --kv-type can be measured.
Result<BackendOptions> parse_backend(const std::string& name, const BackendOptions& like) {
  BackendOptions backend = like;
  const std::size_t colon = name.find(':');
  backend.name = name.substr(0, colon);
  backend.exact = colon != std::string::npos;
  backend.kv_type = "auto";
  if (backend.exact && name.substr(colon) != ":exact") {
    return fail(ErrorCode::kInvalidArgument, "--against: expected a backend's name, or cpu:exact, found '{}'",
                name);
  }
  return backend;
}

// Null when there is nothing to compare with.
Result<std::unique_ptr<LoadedModel>> open_other(const Options& options, ModelOptions opening) {
  if (options.against.empty() && options.against_model.empty()) return std::unique_ptr<LoadedModel>();
  if (!options.against.empty()) {
    LILY_TRY(opening.backend, parse_backend(options.against, opening.backend));
  }
  if (!options.against_model.empty()) opening.model = options.against_model;
  return open_model(opening);
}

std::string format_text(const Evaluation& e, LoadedModel& model, LoadedModel* other) {
  std::string text = fmt::format("{} on {}\n", model.name(), model.backend().description());
  text += fmt::format("tokens      {} in {} window{}, {} scored\n", e.tokens, e.windows,
                      e.windows == 1 ? "" : "s", e.scored);
  text += fmt::format("nll         {:.5f} +- {:.5f}\n", e.nll.value, e.nll.standard_error);
  text += fmt::format("perplexity  {:.4f} +- {:.4f}\n", e.perplexity.value, e.perplexity.standard_error);
  if (e.distance) {
    const Distance& d = *e.distance;
    text += fmt::format("\nagainst {} on {}\n", other->name(), other->backend().description());
    text += fmt::format("perplexity  {:.4f}; this one {:+.3f} %\n", d.other_perplexity,
                        (e.perplexity.value / d.other_perplexity - 1) * 100);
    text += fmt::format("kl          mean {:.3e} +- {:.1e}, 99th percentile {:.3e}, largest {:.3e}\n",
                        d.kl.value, d.kl.standard_error, d.kl_99th, d.kl_max);
    text += fmt::format("top-1       {:.3f} % agree\n", d.top1_agreement * 100);
  }
  return text;
}

std::string format_json(const Evaluation& e, LoadedModel& model, LoadedModel* other) {
  nlohmann::ordered_json json = {{"model", model.name()},
                                 {"backend", model.backend().description()},
                                 {"tokens", e.tokens},
                                 {"windows", e.windows},
                                 {"scored", e.scored},
                                 {"nll", e.nll.value},
                                 {"nll_standard_error", e.nll.standard_error},
                                 {"perplexity", e.perplexity.value},
                                 {"perplexity_standard_error", e.perplexity.standard_error}};
  if (e.distance) {
    const Distance& d = *e.distance;
    json["against"] = {{"model", other->name()},
                       {"backend", other->backend().description()},
                       {"perplexity", d.other_perplexity},
                       {"kl_mean", d.kl.value},
                       {"kl_standard_error", d.kl.standard_error},
                       {"kl_99th", d.kl_99th},
                       {"kl_max", d.kl_max},
                       {"top1_agreement", d.top1_agreement}};
  }
  return json_line(json);
}

}  // namespace

Result<void> run_eval(const Options& options) {
  LILY_TRY(const std::vector<TokenId> ids, text_ids(options));
  if (ids.size() < 2) {
    return fail(ErrorCode::kInvalidArgument, "eval: expected a text of at least 2 tokens, found {}",
                ids.size());
  }
  ModelOptions opening = model_options(options);
  opening.max_seq = std::min(static_cast<std::int64_t>(ids.size()), options.context);
  LILY_TRY(const auto model, open_model(opening));
  LILY_TRY_VOID(check_ids(ids, model->shapes().vocab));
  LILY_TRY(const auto other, open_other(options, opening));

  const Interrupt interrupt;
  Progress progress("eval", ProgressUnit::kTokens, static_cast<std::int64_t>(ids.size()));
  const EvaluationOptions evaluation{
      .context = options.context, .chunk = options.chunk, .progress = [&](std::int64_t done) {
        progress.update(done);
        return !interrupt.pending();
      }};
  LILY_TRY(const Evaluation result, evaluate(*model, other.get(), ids, evaluation));
  progress.clear();
  return console::print(options.json ? format_json(result, *model, other.get())
                                     : format_text(result, *model, other.get()));
}

}  // namespace lily
