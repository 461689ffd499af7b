// Regular expressions, as JSON Schema's `pattern` writes them, as grammar.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/grammar.h"

namespace lily {

/// How the matched string stands in the text: as it is, or inside a JSON string, where some characters are
/// escaped.
enum class StringSpelling { kRaw, kJson };

/// The strings in which `pattern` matches (anywhere, unless it is anchored), without quotes. Known: literals,
/// `.`, classes, groups, alternatives, quantifiers, ^ and $ at the ends of the pattern, \d \w \s and their
/// opposites, \xhh, \uhhhh. kInvalidArgument for the rest (look-around, back-references, \b, \p) and for what
/// is no regular expression.
Result<Grammar::Fragment> compile_regex(std::string_view pattern, StringSpelling spelling, Grammar& grammar);

}  // namespace lily
