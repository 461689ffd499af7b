// Any ids as a model's output: whole characters in every delta, and the same answer when every token of text
// comes byte by byte.
#include <array>
#include <cstdint>

#include "base/check.h"
#include "text/output_parser.h"
#include "text/utf8.h"
#include "tiny_tokenizer.h"

namespace {

struct Answer {
  std::string reasoning;
  std::string content;
  bool stopped = false;
  bool operator==(const Answer&) const = default;
};

Answer parse(const std::vector<lily::TokenId>& prompt, const std::vector<lily::TokenId>& output,
             const std::vector<std::string>& stop) {
  lily::OutputParser parser(tiny_tokenizer(), prompt, {.stop = stop});
  Answer answer;
  const auto take = [&](const lily::OutputDelta& delta) {
    LILY_CHECK(lily::utf8::is_valid(delta.reasoning) && lily::utf8::is_valid(delta.content), "delta");
    answer.reasoning += delta.reasoning;
    answer.content += delta.content;
    answer.stopped = answer.stopped || delta.stopped;
  };
  for (const lily::TokenId id : output) {
    take(parser.push(id));
    if (answer.stopped) break;
  }
  take(parser.finish());
  return answer;
}

// The ids of the 256 single bytes.
std::array<lily::TokenId, 256> find_byte_ids() {
  std::array<lily::TokenId, 256> ids{};
  for (lily::TokenId id = 0; id < tiny_tokenizer().end(); ++id) {
    const std::string_view bytes = tiny_tokenizer().bytes(id);
    if (bytes.size() == 1) ids[static_cast<unsigned char>(bytes[0])] = id;
  }
  return ids;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array<lily::TokenId, 256> byte_ids = find_byte_ids();
  const lily::Tokenizer& tokenizer = tiny_tokenizer();
  if (size < 4) return 0;
  const lily::TokenId first_added = *tokenizer.added_token("<|endoftext|>");
  const std::vector<lily::TokenId> prompt =
      tokenizer.encode((data[0] & 1U) != 0 ? "<think>\n" : "</think>\n\n");
  const std::string stop(reinterpret_cast<const char*>(data) + 1, data[0] % 3U);

  std::vector<lily::TokenId> output;
  std::vector<lily::TokenId> bytewise;
  for (std::size_t i = 3; i + 1 < size; i += 2) {
    // Half of the ids are added tokens, or tags would hardly come up.
    const int number = data[i] | (data[i + 1] << 8);
    const lily::TokenId id =
        data[i + 1] >= 128 ? first_added + number % (tokenizer.end() - first_added) : number % first_added;
    output.push_back(id);
    if (id >= first_added) {
      bytewise.push_back(id);
      continue;
    }
    for (const char c : tokenizer.bytes(id)) bytewise.push_back(byte_ids[static_cast<unsigned char>(c)]);
  }
  LILY_CHECK(parse(prompt, output, {stop, "</think>"}) == parse(prompt, bytewise, {stop, "</think>"}),
             "cuts");
  return 0;
}
