#include "text/detokenizer.h"

#include "text/utf8.h"

namespace lily {

std::string Detokenizer::push(TokenId id) {
  pending_ += tokenizer_->bytes(id);
  std::string out;
  utf8::drain(pending_, out);
  return out;
}

std::string Detokenizer::finish() {
  std::string out = utf8::sanitize(pending_);
  pending_.clear();
  return out;
}

}  // namespace lily
