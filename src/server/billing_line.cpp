#include "server/billing_line.h"

namespace lily {
namespace {

// " name=value;" at the start of `text`, or nothing.
std::string_view leading_pair(std::string_view text) {
  const auto name = text.find_first_not_of(' ');
  if (name == std::string_view::npos) return {};
  const auto equals = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", name);
  if (equals == std::string_view::npos || equals == name || text[equals] != '=') return {};
  const auto end = text.find_first_of(";\n", equals);
  if (end == std::string_view::npos || text[end] != ';') return {};
  return text.substr(0, end + 1);
}

}  // namespace

std::string_view without_billing_line(std::string_view system) {
  constexpr std::string_view kName = "x-anthropic-billing-header:";
  if (!system.starts_with(kName)) return system;
  auto rest = system.substr(kName.size());
  while (!leading_pair(rest).empty()) rest.remove_prefix(leading_pair(rest).size());
  if (rest.size() == system.size() - kName.size()) return system;  // prose that begins with the name
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  if (rest.starts_with('\n')) rest.remove_prefix(1);
  return rest;
}

}  // namespace lily
