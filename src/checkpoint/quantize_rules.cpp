#include "checkpoint/quantize_rules.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "checkpoint/report.h"

namespace lily {
namespace {

bool is_router(std::string_view module) {
  return module.ends_with(".mlp.gate") || module.ends_with(".mlp.shared_expert_gate");
}

Result<int> parse_choice(std::string_view text, std::string_view rule, std::initializer_list<int> choices) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::ranges::count(choices, value) > 0) {
    return value;
  }
  return fail(ErrorCode::kInvalidArgument, "rules: '{}': expected {}, found '{}'", printable(rule),
              fmt::join(choices, " or "), printable(text));
}

Result<QuantizeRule> parse_rule(std::string_view text, const QuantizationSpec& defaults) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    return fail(ErrorCode::kInvalidArgument, "rules: '{}': expected PATTERN=BITS or PATTERN=BITS:GROUP",
                printable(text));
  }
  QuantizeRule rule{.pattern = std::string(text.substr(0, equals)), .spec = defaults};
  std::string_view format = text.substr(equals + 1);
  const std::size_t colon = format.find(':');
  LILY_TRY(rule.spec.bits, parse_choice(format.substr(0, colon), text, {2, 3, 4, 5, 6, 8}));
  if (colon != std::string_view::npos) {
    LILY_TRY(rule.spec.group_size, parse_choice(format.substr(colon + 1), text, {32, 64, 128}));
  }
  return rule;
}

}  // namespace

Result<std::vector<QuantizeRule>> parse_quantize_rules(std::string_view text,
                                                       const QuantizationSpec& defaults) {
  std::vector<QuantizeRule> rules;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    LILY_TRY(QuantizeRule rule, parse_rule(item, defaults));
    rules.push_back(std::move(rule));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
  }
  return rules;
}

QuantizationSpec format_of(const std::string& module, const QuantizationSpec& defaults,
                           const std::vector<QuantizeRule>& rules) {
  QuantizationSpec spec = is_router(module) ? QuantizationSpec{.bits = 8, .group_size = 64} : defaults;
  for (const QuantizeRule& rule : rules) {
    const std::string pattern = "*" + rule.pattern + "*";
    if (::fnmatch(pattern.c_str(), module.c_str(), 0) == 0) spec = rule.spec;
  }
  return spec;
}

}  // namespace lily
