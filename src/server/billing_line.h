// Some coding agents open their system prompt with a line for their own vendor's billing, whose numbers
// change with every request: it tells the model nothing, and no prompt would begin like another.
#pragma once

#include <string_view>

namespace lily {

/// `system` without "x-anthropic-billing-header: name=value; name=value; ..." and its line end at the start.
/// What follows the last pair on the same line stays.
[[nodiscard]] std::string_view without_billing_line(std::string_view system);

}  // namespace lily
