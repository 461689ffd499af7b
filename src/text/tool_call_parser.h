// Tool calls in the model's own markup, found in text that arrives in pieces:
//   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n...</function>\n</tool_call>
// A call comes out while it is being written: its name, then its arguments as growing JSON text.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_set.h"

namespace lily {

struct ToolEvent {
  enum class Kind {
    kText,       ///< not part of a call
    kCall,       ///< a call begins; `text` is the function's name
    kArguments,  ///< the next part of the last call's arguments, JSON text once concatenated
    kCallEnd,    ///< its arguments are complete
  };
  Kind kind = Kind::kText;
  std::string text;
};

/// What it does depends on the text alone, not on how it was cut. Rules beyond the format:
/// - Markup that does not become a call is text, whole. A missing <tool_call> is forgiven before the name of
/// an
///   offered function, closing tags that are missing or doubled always.
/// - Blanks between text and call, and between calls, belong to neither; text after a call is text.
/// - One newline on each side of a value is layout; the rest is the value's, byte for byte.
/// - A malformed <parameter=...> is skipped up to the next tag; of two values for one parameter the first
/// counts.
/// - A call that the end cuts off is closed: its arguments are JSON in any case.
class ToolCallParser {
 public:
  /// `tools` outlives the parser.
  explicit ToolCallParser(const ToolSet& tools) : tools_(&tools) {}

  /// `text` is whole UTF-8 sequences.
  void push(std::string_view text, std::vector<ToolEvent>& out);
  /// `cut`: a limit ended the text, not its author; then the start of a call that has no name yet is nothing.
  void finish(bool cut, std::vector<ToolEvent>& out);

  /// Between calls, with no markup begun and nothing but blanks since the last call.
  [[nodiscard]] bool rests_after_call() const;

  /// Whether `text` could begin the markup of a call that is recognised from its first byte on: kWait when
  /// more text must tell.
  enum class Match { kNo, kWait, kYes };
  [[nodiscard]] static Match begins_call(std::string_view text, const ToolSet& tools);

 private:
  enum class State {
    kText,
    kOpened,    // after <tool_call>
    kFunction,  // inside <function=...>, outside a value
    kValue,
  };
  using Events = std::vector<ToolEvent>;

  // Each takes what it can from the front of buffer_ and returns false when it needs more text (or, at the
  // end, cannot go on).
  bool step(Events& out);
  bool in_text(Events& out);
  bool in_opened(Events& out);
  bool in_function(Events& out);
  bool in_value(Events& out);

  bool take(std::string_view tag);
  void enter(State state, std::size_t bytes);
  void put_text(std::string_view text, Events& out);
  void begin_call(std::string name, std::size_t bytes, Events& out);
  void end_call(Events& out);
  void begin_value(std::string key, std::size_t bytes, Events& out);
  void put_value(std::string_view text, Events& out);
  void end_value(Events& out);
  [[nodiscard]] Match closes_value(std::string_view tail, bool at_line_start) const;
  [[nodiscard]] bool may_take(std::string_view key) const;

  const ToolSet* tools_;
  State state_ = State::kText;
  bool cut_ = false;
  bool ended_ = false;                               // finish() was called: nothing to wait for
  bool after_call_ = false;                          // no text since a call
  bool has_text_ = false;                            // some text came out
  std::string buffer_;                               // text not decided yet
  std::string blanks_;                               // between text and what follows
  std::string opening_;                              // of a <tool_call> that may still turn out to be text
  const ToolSet::Parameters* parameters_ = nullptr;  // of the current function, null: not offered
  std::vector<std::string> keys_;                    // the current call's parameters so far
  bool value_starts_ = false;                        // its first newline is layout
  bool raw_ = false;                                 // the value is a string alone and goes out as it comes
  std::string value_;                                // a value that is converted once it is complete
  JsonTypes types_;
};

}  // namespace lily
