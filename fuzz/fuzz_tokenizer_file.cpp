// Any bytes as tokenizer.json: an error, or a tokenizer whose ids stand for the text.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = lily::Tokenizer::parse(input);
  if (!tokenizer.ok()) return 0;
  const std::string_view text = input.substr(0, 200);
  for (const auto matching : {lily::AddedTokenMatching::kMatch, lily::AddedTokenMatching::kLiteral}) {
    const std::vector<lily::TokenId> ids = tokenizer->encode(text, matching);
    for (const lily::TokenId id : ids) LILY_CHECK(tokenizer->has_token(id), "id {}", id);
    LILY_CHECK(ids.empty() == text.empty(), "{} ids", ids.size());
    LILY_CHECK(lily::utf8::is_valid(tokenizer->decode(ids)), "decode");
  }
  return 0;
}
