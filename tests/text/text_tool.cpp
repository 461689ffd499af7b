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

#include "text/chat_template.h"
#include "text/python_json.h"
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

nlohmann::ordered_json render_frame(const lily::ChatTemplate& chat_template, const std::string& frame) {
  const auto request = lily::parse_template_json(frame);
  if (!request.ok()) return {{"error", request.error().message}};
  const auto flag = [&](const char* name, bool absent) { return request->value(name, absent); };
  const lily::ChatTemplateOptions options{.add_generation_prompt = flag("add_generation_prompt", true),
                                          .enable_thinking = flag("enable_thinking", true),
                                          .preserve_thinking = flag("preserve_thinking", false),
                                          .add_vision_id = flag("add_vision_id", false)};
  const auto text = chat_template.render(request->at("messages"), request->at("tools"), options);
  if (!text.ok()) return {{"error", text.error().message}};
  return {{"text", *text}};
}

int render(const std::string& file) {
  const lily::Result<lily::ChatTemplate> chat_template = lily::ChatTemplate::recognise(file);
  if (!chat_template.ok()) {
    fmt::print(stderr, "{}\n", chat_template.error().message);
    return 1;
  }
  while (const std::optional<std::string> frame = read_frame()) {
    std::cout << render_frame(*chat_template, *frame).dump() << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string mode = argv[1];
  std::ios::sync_with_stdio(false);
  if (mode == "encode") return encode(read_file(argv[2]));
  if (mode == "render") return render(read_file(argv[2]));
  return 2;
}
