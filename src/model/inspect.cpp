#include "model/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/units.h"

namespace lily {
namespace {

constexpr std::int64_t kBf16Bytes = 2;
constexpr std::int64_t kF32Bytes = 4;

std::int64_t state_bytes(const Shapes& s) {
  return s.linear_layers *
         (kF32Bytes * s.recurrent_state_size() + kBf16Bytes * kConvHistory * s.conv_channels());
}

std::int64_t kv_bytes_per_token(const Shapes& s, KvType type) {
  return s.attention_layers * 2 * s.kv_heads * kv_row_bytes(type);
}

std::vector<std::int64_t> context_lengths(std::int64_t limit) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : {4096, 32768, 131072}) {
    if (length < limit) lengths.push_back(length);
  }
  lengths.push_back(limit);
  return lengths;
}

void add_costs(const Checkpoint& checkpoint, const ModelWeights& weights, ModelReport& report) {
  report.state_bytes = state_bytes(weights.shapes);
  report.kv_bytes_per_token = kv_bytes_per_token(weights.shapes, report.kv_type);
  report.stored_bytes = weights.stored_bytes();
  report.token_bytes = weights.token_bytes();
  report.parameters = weights.parameters().total();
  report.active_parameters = weights.active_parameters().total();
  for (const std::int64_t tokens : context_lengths(checkpoint.config().max_position_embeddings)) {
    const std::int64_t kv = tokens * report.kv_bytes_per_token;
    report.contexts.push_back({.tokens = tokens,
                               .kv_bytes = kv,
                               .memory_bytes = report.stored_bytes.total() + report.state_bytes + kv,
                               .token_bytes = report.token_bytes.total() + 2 * report.state_bytes + kv});
  }
}

void count_tensors(const Checkpoint& checkpoint, ModelReport& report) {
  report.tensors = std::ssize(checkpoint.tensors());
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (!is_unused_family(name)) continue;
    ++report.skipped_tensors;
    report.skipped_bytes += std::ssize(tensor.data);
  }
}

std::string shown(std::int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string architecture(const ModelConfig& c) {
  const auto linear = std::ranges::count(c.layer_types, LayerType::kLinearAttention);
  const std::string mlp = c.is_dense() ? fmt::format("dense feed-forward of {}", c.intermediate_size)
                                       : fmt::format("{} experts of {}, {} a token, shared {}", c.num_experts,
                                                     c.moe_intermediate_size, c.num_experts_per_tok,
                                                     c.shared_expert_intermediate_size);
  return fmt::format(
      "  {}: {} layers ({} gated delta, {} attention), hidden {}, vocabulary {}\n"
      "  attention {}/{} heads of {}, gated delta {}/{} heads of {}, {}\n",
      c.model_type, c.num_hidden_layers, linear, c.num_hidden_layers - linear, c.hidden_size, c.vocab_size,
      c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.linear_num_key_heads,
      c.linear_num_value_heads, c.linear_key_head_dim, mlp);
}

std::string quantization(const ModelConfig& c) {
  if (!c.quantization) return "  not quantized\n";
  return fmt::format("  {} bits in groups of {}, {} modules differ\n", c.quantization->defaults.bits,
                     c.quantization->defaults.group_size, c.quantization->overrides.size());
}

std::string weights_table(const ModelReport& report) {
  struct Row {
    const char* label;
    std::int64_t WeightParts::* part;
  };
  constexpr Row kRows[] = {{"embedding", &WeightParts::embedding},
                           {"gated delta mixers", &WeightParts::recurrent_mixers},
                           {"attention mixers", &WeightParts::attention_mixers},
                           {"routed experts", &WeightParts::experts},
                           {"shared experts", &WeightParts::shared_experts},
                           {"routers", &WeightParts::routers},
                           {"dense feed-forwards", &WeightParts::dense_mlps},
                           {"norms", &WeightParts::norms},
                           {"head", &WeightParts::head}};
  std::string text = fmt::format("\n{:<22}{:>12}{:>18}\n", "weights", "stored", "read a token");
  for (const Row& row : kRows) {
    if (report.stored_bytes.*row.part == 0 && report.token_bytes.*row.part == 0) continue;
    text += fmt::format("  {:<20}{:>12}{:>18}\n", row.label, shown(report.stored_bytes.*row.part),
                        shown(report.token_bytes.*row.part));
  }
  return text + fmt::format("  {:<20}{:>12}{:>18}\n", "total", shown(report.stored_bytes.total()),
                            shown(report.token_bytes.total()));
}

std::string contexts_table(const ModelReport& report) {
  std::string text =
      fmt::format("\n{:<22}{:>12}{:>18}{:>18}\n", "context", "KV", "memory needed", "read a token");
  for (const ContextCost& cost : report.contexts) {
    text += fmt::format("  {:<20}{:>12}{:>18}{:>18}\n", cost.tokens, shown(cost.kv_bytes),
                        shown(cost.memory_bytes), shown(cost.token_bytes));
  }
  return text + fmt::format("  ({} KV, {} a token; recurrent state {} a sequence)\n",
                            kv_type_name(report.kv_type), shown(report.kv_bytes_per_token),
                            shown(report.state_bytes));
}

}  // namespace

Result<ModelReport> inspect_model(const std::string& model, KvType kv_type) {
  LILY_TRY(const auto files, ModelFiles::open(model));
  ModelReport report;
  report.model = model;
  report.kv_type = kv_type;
  auto checkpoint = Checkpoint::open_collecting(files, report.problems);
  if (!checkpoint.ok()) {
    report.problems.push_back(std::move(checkpoint).error());
    return report;
  }
  report.config = checkpoint->config();
  count_tensors(*checkpoint, report);
  const ModelWeights weights = load_weights_collecting(*checkpoint, report.problems);
  if (report.loads()) add_costs(*checkpoint, weights, report);
  return report;
}

std::string format_report(const ModelReport& report) {
  std::string text = report.model + "\n";
  if (report.config) {
    text += architecture(*report.config) + quantization(*report.config);
    text += fmt::format("  {} tensors, {} of them not for text and skipped ({})\n", report.tensors,
                        report.skipped_tensors, shown(report.skipped_bytes));
  }
  if (report.loads()) {
    text += fmt::format("  {} parameters, {} of them active for a token\n", report.parameters,
                        report.active_parameters);
    text += weights_table(report) + contexts_table(report);
  }
  if (report.loads()) return text + "\nloads\n";
  text += "\ndoes not load:\n";
  for (const Error& problem : report.problems) text += fmt::format("  {}\n", problem.message);
  return text;
}

}  // namespace lily
