// Strings as JSON writes them, as grammar.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/grammar.h"
#include "text/regex_grammar.h"

namespace lily {

class JsonStrings {
 public:
  explicit JsonStrings(Grammar& grammar);

  /// Any string, quotes included.
  [[nodiscard]] Grammar::RuleId any() const { return any_; }

  /// `least` to `most` characters, without quotes; an escape is one of them.
  [[nodiscard]] Grammar::Fragment counted(StringSpelling spelling, std::uint32_t least, std::uint32_t most);

  [[nodiscard]] Grammar::Fragment quoted(Grammar::Fragment inside);

 private:
  [[nodiscard]] Grammar::Fragment escape();
  [[nodiscard]] Grammar::RuleId character(StringSpelling spelling);

  Grammar& grammar_;
  Grammar::RuleId any_;
};

/// The regular expression of a `format` of JSON Schema; empty for those that say nothing here.
[[nodiscard]] std::string format_pattern(std::string_view format);

}  // namespace lily
