// The tokenizer of models/tiny, for targets that need a sound one.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "text/tokenizer.h"

inline const lily::Tokenizer& tiny_tokenizer() {
  static const lily::Tokenizer tokenizer = [] {
    std::ifstream stream(LILY_SOURCE_DIR "/models/tiny/tokenizer.json", std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    return lily::Tokenizer::parse(text).value();
  }();
  return tokenizer;
}
