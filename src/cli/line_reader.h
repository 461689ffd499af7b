// Lines from the user: edited in place with a history on a terminal, plain ones from a pipe.
#pragma once

#include <memory>
#include <string>

namespace lily {

struct Line {
  enum class Kind {
    kText,
    kInterrupted,  ///< Ctrl-C at the prompt
    kEnd,          ///< Ctrl-D at the prompt, or the end of the input
  };
  Kind kind = Kind::kEnd;
  std::string text;  ///< without its line break
};

class LineReader {
 public:
  /// Edits lines if stdin and stdout are both a terminal; a prompt is shown only then.
  static std::unique_ptr<LineReader> create();
  virtual ~LineReader() = default;

  virtual Line read(const std::string& prompt) = 0;
  /// What ↑ brings back.
  virtual void remember(const std::string& text) = 0;
};

}  // namespace lily
