// Finds the first stop string in text that arrives in pieces, and holds back what may still become one.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

/// Matches byte by byte (Knuth-Morris-Pratt, one matcher a stop string), so the outcome does not depend on
/// how the text was cut into pieces: what is held back is always the longest tail of the text that some stop
/// string begins with.
class StopStrings {
 public:
  /// Empty strings stop nothing.
  explicit StopStrings(const std::vector<std::string>& stops);

  /// Appends to `out` what is certain to stand before any stop string. True when one is complete: the text
  /// ends right before it, and nothing more may be pushed. Of several, the one that is complete first wins;
  /// of those complete at the same byte, the longest.
  bool push(std::string_view text, std::string& out);
  /// Appends what was held back: no stop string came of it.
  void finish(std::string& out);
  /// The stop string that push() met; empty before.
  [[nodiscard]] const std::string& met() const { return met_; }

 private:
  struct Matcher {
    std::string stop;
    std::vector<std::size_t> border;  // [n]: longest proper prefix of stop[0..n] that is also its tail
    std::size_t matched = 0;          // bytes of `stop` that the text ends with

    explicit Matcher(std::string text);
    void push(char c);
    [[nodiscard]] bool complete() const { return matched == stop.size(); }
  };

  std::vector<Matcher> matchers_;
  std::string held_;
  std::string met_;
};

}  // namespace lily
