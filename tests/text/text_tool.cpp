// A front for the comparisons of tools/parity: frames on stdin, one line of JSON a frame on stdout.
//
//   text_tool encode TOKENIZER_JSON   frame = text; prints its ids
//   text_tool render TEMPLATE_JINJA   frame = {"messages": …, "tools": …, "kwargs": …}; prints {"text"} or
//   {"error"}
//
// A frame is a decimal byte count, a newline, and that many bytes.
#include <fmt/core.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/tokenizer.h"

namespace {

std::string read_file(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

std::optional<std::string> read_frame() {
  std::string count;
  if (!std::getline(std::cin, count)) return std::nullopt;
  std::string frame(std::stoul(count), '\0');
  std::cin.read(frame.data(), static_cast<std::streamsize>(frame.size()));
  return frame;
}

int encode(const std::string& file) {
  const lily::Result<lily::Tokenizer> tokenizer = lily::Tokenizer::parse(file);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  while (const std::optional<std::string> frame = read_frame()) {
    std::cout << nlohmann::json(tokenizer->encode(*frame)).dump() << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[1];
  std::ios::sync_with_stdio(false);
  if (mode == "encode") return encode(read_file(argv[2]));
  return 2;
}
