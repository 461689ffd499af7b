#include "text/pre_tokenizer.h"

namespace lily {

Result<std::unique_ptr<PreTokenizer>> PreTokenizer::create(const std::string& pattern) {
  if (pattern == kQwenSplitPattern) return make_qwen_pre_tokenizer();
  return make_regex_pre_tokenizer(pattern);
}

}  // namespace lily
