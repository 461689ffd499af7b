#include "cli/eval_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/json_text.h"
#include "engine/benchmark.h"

namespace lily {
namespace {

double agreement(const ContinuationDistance& c) {
  return c.steps > 0 ? static_cast<double>(c.agreed) / static_cast<double>(c.steps) : 1;
}

// The median of the steps at which continuations diverge; -1: none does.
double median_divergence(const ContinuationDistance& c) {
  return c.first.empty() ? -1 : median({c.first.begin(), c.first.end()});
}

std::string distance_text(const Evaluation& e, const Distance& d) {
  std::string text = fmt::format("perplexity  {:.4f}; this one {:+.3f} %\n", d.other_perplexity,
                                 (e.perplexity.value / d.other_perplexity - 1) * 100);
  text += fmt::format("kl          mean {:.3e} +- {:.1e}, 99th percentile {:.3e}, largest {:.3e}\n",
                      d.kl.value, d.kl.standard_error, d.kl_99th, d.kl_max);
  return text + fmt::format("top-1       {:.3f} % agree, the first that does not is position {}\n",
                            d.top1_agreement * 100,
                            d.first_disagreement < 0 ? "none" : std::to_string(d.first_disagreement));
}

std::string continuation_text(const ContinuationDistance& c) {
  const auto same = c.continuations - std::ssize(c.first);
  std::string text = fmt::format("continued   {} prompts, {} tokens: top-1 {:.3f} % agree; {} never diverge",
                                 c.continuations, c.steps, agreement(c) * 100, same);
  if (!c.first.empty()) text += fmt::format(", the others at token {:.1f} (median)", median_divergence(c));
  if (c.kl.empty()) return text + "\n";
  return text + fmt::format("\n  their kl  mean {:.3e} +- {:.1e}, 99th percentile {:.3e}, at least\n",
                            mean_of(c.kl).value, mean_of(c.kl).standard_error, percentile(c.kl, 0.99));
}

}  // namespace

std::string eval_text(const EvalReport& report) {
  const Evaluation& e = report.evaluation;
  std::string text = fmt::format("{} on {}\n", report.model, report.backend);
  text += fmt::format("tokens      {} in {} window{}, {} scored\n", e.tokens, e.windows,
                      e.windows == 1 ? "" : "s", e.scored);
  text += fmt::format("nll         {:.5f} +- {:.5f}\n", e.nll.value, e.nll.standard_error);
  text += fmt::format("perplexity  {:.4f} +- {:.4f}\n", e.perplexity.value, e.perplexity.standard_error);
  if (report.other_model.empty()) return text;
  text += fmt::format("\nagainst {} on {}\n", report.other_model, report.other_backend);
  if (e.distance) text += distance_text(e, *e.distance);
  if (report.continuation) text += continuation_text(*report.continuation);
  return text;
}

std::string eval_json(const EvalReport& report) {
  const Evaluation& e = report.evaluation;
  nlohmann::ordered_json json = {{"model", report.model},
                                 {"backend", report.backend},
                                 {"tokens", e.tokens},
                                 {"windows", e.windows},
                                 {"scored", e.scored},
                                 {"nll", e.nll.value},
                                 {"nll_standard_error", e.nll.standard_error},
                                 {"perplexity", e.perplexity.value},
                                 {"perplexity_standard_error", e.perplexity.standard_error}};
  if (report.other_model.empty()) return json_line(json);
  auto& against = json["against"] = {{"model", report.other_model}, {"backend", report.other_backend}};
  if (e.distance) {
    const Distance& d = *e.distance;
    against.update({{"perplexity", d.other_perplexity},
                    {"kl_mean", d.kl.value},
                    {"kl_standard_error", d.kl.standard_error},
                    {"kl_99th", d.kl_99th},
                    {"kl_max", d.kl_max},
                    {"top1_agreement", d.top1_agreement},
                    {"first_disagreement", d.first_disagreement}});
  }
  if (report.continuation) {
    const ContinuationDistance& c = *report.continuation;
    against["continuation"] = {{"prompts", c.continuations},
                               {"tokens", c.steps},
                               {"top1_agreement", agreement(c)},
                               {"diverged_at", c.first}};
    if (!c.kl.empty()) {
      against["continuation"]["kl_mean"] = mean_of(c.kl).value;
      against["continuation"]["kl_99th"] = percentile(c.kl, 0.99);
    }
  }
  return json_line(json);
}

}  // namespace lily
