#include "text/stop_strings.h"

#include <algorithm>

#include "text/utf8.h"

namespace lily {

StopStrings::Matcher::Matcher(std::string text) : stop(std::move(text)), border(stop.size(), 0) {
  for (std::size_t n = 1; n < stop.size(); ++n) {
    push(stop[n]);
    border[n] = matched;
  }
  matched = 0;
}

void StopStrings::Matcher::push(char c) {
  while (matched > 0 && stop[matched] != c) matched = border[matched - 1];
  if (stop[matched] == c) ++matched;
}

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    // Of valid UTF-8 every stop string begins at a character, so what is released never ends inside one.
    if (!stop.empty()) matchers_.emplace_back(utf8::sanitize(stop));
  }
}

bool StopStrings::push(std::string_view text, std::string& out) {
  std::size_t tail = 0;  // longest partial match
  for (const char c : text) {
    held_ += c;
    tail = 0;
    std::size_t match = 0;
    for (Matcher& matcher : matchers_) {
      matcher.push(c);
      if (matcher.complete()) match = std::max(match, matcher.matched);
      tail = std::max(tail, matcher.matched);
    }
    if (match > 0) {
      out.append(held_, 0, held_.size() - match);
      met_ = held_.substr(held_.size() - match);
      held_.clear();
      return true;
    }
  }
  if (text.empty()) return false;
  out.append(held_, 0, held_.size() - tail);
  held_.erase(0, held_.size() - tail);
  return false;
}

void StopStrings::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace lily
