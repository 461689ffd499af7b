#include "text/json_containers.h"

#include <nlohmann/json.hpp>

#include "text/json_numbers.h"

namespace lily {

using Fragment = Grammar::Fragment;
using RuleId = Grammar::RuleId;

namespace {

constexpr std::uint32_t kIndentation = 40;  // blanks behind a line break

Fragment blank_fragment(Grammar& grammar) {
  const RuleId indent = grammar.rule(grammar.any_of({{' ', ' '}, {'\t', '\t'}}));
  return grammar.choice({grammar.nothing(), grammar.literal(" "),
                         grammar.sequence({grammar.literal("\n"), grammar.repeat(indent, 0, kIndentation)})});
}

}  // namespace

JsonContainers::JsonContainers(Grammar& grammar)
    : grammar_(grammar), strings_(grammar), blanks_(grammar.rule(blank_fragment(grammar))) {}

RuleId JsonContainers::any_value() {
  if (any_value_) return *any_value_;
  const RuleId rule = grammar_.declare();
  any_value_ = rule;
  grammar_.define(
      rule, grammar_.choice({grammar_.call(strings_.any()), number_grammar({}, grammar_),
                             grammar_.literal("true"), grammar_.literal("false"), grammar_.literal("null"),
                             array(rule, 0, Grammar::kUnbounded), grammar_.call(any_object())}));
  return rule;
}

RuleId JsonContainers::any_object() {
  if (any_object_) return *any_object_;
  const RuleId rule = grammar_.declare();
  any_object_ = rule;
  const RuleId member = member_of_any_name(any_value());
  grammar_.define(rule, enclosed("{", list(member, 0, Grammar::kUnbounded), "}"));
  return rule;
}

Fragment JsonContainers::enclosed(std::string_view open, Fragment inside, std::string_view close) {
  return grammar_.sequence({grammar_.literal(open), inside, grammar_.literal(close)});
}

Fragment JsonContainers::array(RuleId item, std::uint32_t least, std::uint32_t most) {
  return enclosed("[", most == 0 ? blank() : list(item, least, most), "]");
}

Fragment JsonContainers::tuple(const std::vector<RuleId>& items) {
  std::vector<Fragment> parts;
  for (const RuleId item : items) {
    if (!parts.empty()) parts.push_back(grammar_.literal(","));
    parts.push_back(blank());
    parts.push_back(grammar_.call(item));
  }
  parts.push_back(blank());
  return enclosed("[", grammar_.sequence(parts), "]");
}

// With commas between.
Fragment JsonContainers::list(RuleId item, std::uint32_t least, std::uint32_t most) {
  const RuleId next = grammar_.rule(grammar_.sequence({grammar_.literal(","), blank(), grammar_.call(item)}));
  const std::uint32_t more = most == Grammar::kUnbounded ? most : most - 1;
  const Fragment some = grammar_.sequence(
      {blank(), grammar_.call(item), grammar_.repeat(next, least > 0 ? least - 1 : 0, more), blank()});
  return least > 0 ? some : grammar_.choice({blank(), some});
}

RuleId JsonContainers::pair(Fragment key, RuleId value) {
  return grammar_.rule(grammar_.sequence({key, grammar_.literal(":"), blank(), grammar_.call(value)}));
}

RuleId JsonContainers::member(std::string_view key, RuleId value) {
  return pair(grammar_.literal(nlohmann::ordered_json(key).dump()), value);
}

RuleId JsonContainers::member_of_any_name(RuleId value) {
  return pair(grammar_.call(strings_.any()), value);
}

// Two rows of places, one before the first member and one after some: a member leads from either to the
// second.
Fragment JsonContainers::object(const std::vector<Member>& members, std::optional<RuleId> extra) {
  const auto place = [&] { return grammar_.nothing().in; };
  const Fragment whole{place(), place()};
  Grammar::StateId none = place();
  Grammar::StateId some = place();
  grammar_.link(whole.in, none);
  const auto connect = [&](Grammar::StateId from, Fragment part, Grammar::StateId to) {
    grammar_.link(from, part.in);
    grammar_.link(part.out, to);
  };
  const auto first = [&](RuleId pair) { return grammar_.sequence({blank(), grammar_.call(pair)}); };
  const auto next = [&](RuleId pair) {
    return grammar_.sequence({grammar_.literal(","), blank(), grammar_.call(pair)});
  };
  for (const Member& member : members) {
    const Grammar::StateId later = place();
    connect(none, first(member.pair), later);
    connect(some, next(member.pair), later);
    if (member.required) {
      none = place();  // out of reach
    } else {
      grammar_.link(some, later);
    }
    some = later;
  }
  if (extra) {
    const Grammar::StateId later = place();
    connect(none, first(*extra), later);
    connect(some, next(*extra), later);
    connect(later, next(*extra), later);
    grammar_.link(some, later);
    some = later;
  }
  connect(none, blank(), whole.out);
  connect(some, blank(), whole.out);
  return enclosed("{", whole, "}");
}

}  // namespace lily
