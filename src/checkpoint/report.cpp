#include "checkpoint/report.h"

#include <algorithm>

namespace lily {
namespace {

constexpr std::size_t kListed = 5;
constexpr std::size_t kLongestName = 200;

std::string join(const std::vector<std::string>& parts, std::string_view separator, std::string_view rest) {
  const std::size_t listed = std::min(parts.size(), kListed);
  std::string text;
  for (std::size_t i = 0; i < listed; ++i) {
    if (i != 0) text += separator;
    text += parts[i];
  }
  if (parts.size() > listed) text += fmt::format("{}{} more", rest, parts.size() - listed);
  return text;
}

}  // namespace

std::string printable(std::string_view name) {
  std::string text(name);
  if (text.size() > kLongestName) {
    text = text.substr(0, kLongestName / 2) + "..." + text.substr(text.size() - kLongestName / 2);
  }
  std::ranges::replace_if(
      text,
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f; },
      '?');
  return text;
}

std::string list_names(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  shown.reserve(names.size());
  std::ranges::transform(names, std::back_inserter(shown), printable);
  return join(shown, ", ", " and ");
}

Error combine(const std::vector<Error>& problems) {
  LILY_CHECK(!problems.empty(), "combine() of no problem");
  std::vector<std::string> messages;
  messages.reserve(problems.size());
  std::ranges::transform(problems, std::back_inserter(messages), &Error::message);
  return Error{problems.front().code, join(messages, "; ", "; and ")};
}

}  // namespace lily
