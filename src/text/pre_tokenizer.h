// Cuts text into the pieces inside which BPE merges, by the split pattern of tokenizer.json.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lily {

/// One split pattern. Matches and the gaps between them are the pieces ("isolated"); nothing is dropped.
class PreTokenizer {
 public:
  /// The Qwen3.5/3.6 pattern is split by hand, any other by PCRE2. kUnsupported for one that PCRE2 refuses.
  static Result<std::unique_ptr<PreTokenizer>> create(const std::string& pattern);

  virtual ~PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  /// Appends the pieces of valid UTF-8 to `out`. Thread-safe.
  virtual void split(std::string_view text, std::vector<std::string_view>& out) const = 0;

 protected:
  PreTokenizer() = default;
};

/// The pattern that tokenizer.json of Qwen3.5 and Qwen3.6 holds.
extern const std::string_view kQwenSplitPattern;

/// kQwenSplitPattern by hand: linear time, constant stack, Unicode 16 classes as in the reference.
std::unique_ptr<PreTokenizer> make_qwen_pre_tokenizer();
/// Any pattern by PCRE2 (Unicode 14 classes in PCRE2 10.42).
Result<std::unique_ptr<PreTokenizer>> make_regex_pre_tokenizer(const std::string& pattern);

}  // namespace lily
