// Arrays and objects as JSON writes them, and any value at all, as grammar. Blanks are at most one space, or
// one line break with its indentation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/grammar.h"
#include "text/json_strings.h"

namespace lily {

class JsonContainers {
 public:
  /// A key with its value.
  struct Member {
    Grammar::RuleId pair;
    bool required;
  };

  explicit JsonContainers(Grammar& grammar);

  [[nodiscard]] JsonStrings& strings() { return strings_; }
  [[nodiscard]] Grammar::RuleId any_value();
  [[nodiscard]] Grammar::RuleId any_object();

  /// `least` to `most` times the same.
  [[nodiscard]] Grammar::Fragment array(Grammar::RuleId item, std::uint32_t least, std::uint32_t most);
  /// All of these, in this order.
  [[nodiscard]] Grammar::Fragment tuple(const std::vector<Grammar::RuleId>& items);

  [[nodiscard]] Grammar::RuleId member(std::string_view key, Grammar::RuleId value);
  [[nodiscard]] Grammar::RuleId member_of_any_name(Grammar::RuleId value);
  /// These members in this order, behind them any number of `extra`.
  [[nodiscard]] Grammar::Fragment object(const std::vector<Member>& members,
                                         std::optional<Grammar::RuleId> extra);

 private:
  [[nodiscard]] Grammar::Fragment blank() { return grammar_.call(blanks_); }
  [[nodiscard]] Grammar::Fragment enclosed(std::string_view open, Grammar::Fragment inside,
                                           std::string_view close);
  [[nodiscard]] Grammar::Fragment list(Grammar::RuleId item, std::uint32_t least, std::uint32_t most);
  [[nodiscard]] Grammar::RuleId pair(Grammar::Fragment key, Grammar::RuleId value);

  Grammar& grammar_;
  JsonStrings strings_;
  Grammar::RuleId blanks_;
  std::optional<Grammar::RuleId> any_value_;
  std::optional<Grammar::RuleId> any_object_;
};

}  // namespace lily
