// Which module of a model gets which bits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/config.h"

namespace lily {

/// Modules whose path holds `pattern` (a shell pattern) get `spec`.
struct QuantizeRule {
  std::string pattern;
  QuantizationSpec spec;
};

/// "v_proj=6,layers.[0-4].*down_proj=6:32": bits, and a group size where it is not `defaults`'.
Result<std::vector<QuantizeRule>> parse_quantize_rules(std::string_view text,
                                                       const QuantizationSpec& defaults);

/// The format of a module: that of the last rule that matches it; without one, 8 bits in groups of 64 for
/// routers and shared experts' gates, as published, and `defaults` for all else.
[[nodiscard]] QuantizationSpec format_of(const std::string& module, const QuantizationSpec& defaults,
                                         const std::vector<QuantizeRule>& rules);

}  // namespace lily
