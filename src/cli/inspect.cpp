// lily inspect: what a checkpoint holds and needs, what would keep it from loading, and whether its bytes are
// right.
#include "model/inspect.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "base/progress.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/interrupt.h"
#include "cli/json_text.h"
#include "hub/verify.h"

namespace lily {
namespace {

nlohmann::ordered_json to_json(const WeightParts& parts) {
  return {{"embedding", parts.embedding},
          {"recurrent_mixers", parts.recurrent_mixers},
          {"attention_mixers", parts.attention_mixers},
          {"experts", parts.experts},
          {"shared_experts", parts.shared_experts},
          {"routers", parts.routers},
          {"dense_mlps", parts.dense_mlps},
          {"norms", parts.norms},
          {"head", parts.head},
          {"total", parts.total()}};
}

nlohmann::ordered_json to_json(const VerifyReport& verified) {
  nlohmann::ordered_json json = {
      {"against", verified.against}, {"files", verified.files}, {"bytes", verified.bytes}};
  json["problems"] = nlohmann::ordered_json::array();
  for (const Error& problem : verified.problems) json["problems"].push_back(problem.message);
  return json;
}

std::string format_verified(const VerifyReport& verified) {
  std::string text =
      verified.against.empty()
          ? "\nnothing to compare digests with: no SHA256SUMS here, and this is no hub's cache\n"
          : fmt::format("\ncompared {} files, {}, with {}\n", verified.files,
                        format_bytes(static_cast<double>(verified.bytes)), verified.against);
  for (const Error& problem : verified.problems) text += fmt::format("  {}\n", problem.message);
  return text;
}

Result<std::optional<VerifyReport>> verify(const Options& options) {
  if (!options.verify && options.checksums.empty()) return std::optional<VerifyReport>();
  const Interrupt interrupt;
  std::optional<Progress> progress;
  auto verified =
      verify_checkpoint(options.model, options.checksums, [&](std::int64_t done, std::int64_t total) {
        if (!progress) progress.emplace("verify", ProgressUnit::kBytes, total);
        progress->update(done);
        return !interrupt.pending();
      });
  progress.reset();
  if (!verified.ok()) return std::move(verified).error();
  return std::optional<VerifyReport>(std::move(verified).value());
}

std::string format_json(const ModelReport& report, const std::optional<VerifyReport>& verified) {
  nlohmann::ordered_json json = {{"model", report.model}, {"loads", report.loads()}};
  if (report.config) {
    json["layers"] = report.config->num_hidden_layers;
    json["hidden_size"] = report.config->hidden_size;
    json["experts"] = report.config->num_experts;
    json["experts_per_token"] = report.config->num_experts_per_tok;
    json["vocab_size"] = report.config->vocab_size;
    json["max_position_embeddings"] = report.config->max_position_embeddings;
  }
  json["tensors"] = report.tensors;
  json["skipped_tensors"] = report.skipped_tensors;
  json["skipped_bytes"] = report.skipped_bytes;
  if (report.loads()) {
    json["parameters"] = report.parameters;
    json["active_parameters"] = report.active_parameters;
    json["stored_bytes"] = to_json(report.stored_bytes);
    json["token_bytes"] = to_json(report.token_bytes);
    json["state_bytes"] = report.state_bytes;
    json["kv_type"] = kv_type_name(report.kv_type);
    json["kv_bytes_per_token"] = report.kv_bytes_per_token;
    for (const ContextCost& cost : report.contexts) {
      json["contexts"].push_back({{"tokens", cost.tokens},
                                  {"kv_bytes", cost.kv_bytes},
                                  {"memory_bytes", cost.memory_bytes},
                                  {"token_bytes", cost.token_bytes}});
    }
  }
  json["problems"] = nlohmann::ordered_json::array();
  for (const Error& problem : report.problems) json["problems"].push_back(problem.message);
  if (verified) json["verified"] = to_json(*verified);
  return json_line(json);
}

}  // namespace

Result<void> run_inspect(const Options& options) {
  LILY_TRY(const KvType kv_type, parse_kv_type(options.kv_type, KvType::kBf16));
  LILY_TRY(const ModelReport report, inspect_model(options.model, kv_type));
  LILY_TRY(const std::optional<VerifyReport> verified, verify(options));
  const std::string text = format_report(report) + (verified ? format_verified(*verified) : "");
  LILY_TRY_VOID(console::print(options.json ? format_json(report, verified) : text));
  if (!report.loads()) {
    return fail(ErrorCode::kCorrupt, "{}: would not load: {} problem{}", report.model, report.problems.size(),
                report.problems.size() == 1 ? "" : "s");
  }
  if (verified && !verified->problems.empty()) {
    return fail(ErrorCode::kCorrupt, "{}: {} file{} not what {} says", report.model,
                verified->problems.size(), verified->problems.size() == 1 ? " is" : "s are",
                verified->against.empty() ? "the index" : verified->against);
  }
  return {};
}

}  // namespace lily
