// Any bytes as text: encoding loses nothing but what normalisation and repair change, however the answer is
// streamed, and our splitter cuts where the text allows.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/normalizer.h"
#include "text/utf8.h"
#include "tiny_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lily::Tokenizer& tokenizer = tiny_tokenizer();
  const std::string text = lily::utf8::sanitize({reinterpret_cast<const char*>(data), size});
  std::string storage;
  const std::string normalized(lily::nfc(text, storage));
  std::string again;
  LILY_CHECK(lily::nfc(normalized, again) == normalized, "NFC is not idempotent");

  const std::vector<lily::TokenId> literal = tokenizer.encode(text, lily::AddedTokenMatching::kLiteral);
  LILY_CHECK(tokenizer.decode(literal) == normalized, "literal");
  const std::vector<lily::TokenId> matched = tokenizer.encode(text);
  std::string streamed;
  lily::Detokenizer detokenizer(tokenizer);
  for (const lily::TokenId id : matched) {
    const std::string delta = detokenizer.push(id);
    LILY_CHECK(lily::utf8::is_valid(delta), "delta");
    streamed += delta;
  }
  streamed += detokenizer.finish();
  LILY_CHECK(streamed == tokenizer.decode(matched), "streamed");
  return 0;
}
