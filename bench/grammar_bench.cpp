// What constrained output costs a token: masks over a vocabulary of the published size.
//   grammar_bench [tokenizer.json]
// Without a file the vocabulary is made up: 248,000 distinct strings of letters, blanks, digits, punctuation
// and characters of other scripts, now and then cut in the middle, with lengths like those of the published
// one.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "text/grammar_automaton.h"
#include "text/json_schema.h"
#include "text/tool_grammar.h"
#include "text/utf8.h"

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double micros(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

std::string printable(unsigned char byte) {
  // GPT-2's stand-in for each byte.
  static const auto table = [] {
    std::vector<std::string> out(256);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const int code = plain ? b : next++;
      std::string& text = out[static_cast<std::size_t>(b)];
      if (code < 128) {
        text = static_cast<char>(code);
      } else {
        text = {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
      }
    }
    return out;
  }();
  return table[byte];
}

// A character of Cyrillic, Hangul, Chinese or a symbol beyond the first plane.
std::string wide_character(std::mt19937& random) {
  static constexpr std::array<std::pair<char32_t, unsigned>, 4> kScripts = {
      {{0x0400, 0x100}, {0xAC00, 0x2B00}, {0x4E00, 0x5000}, {0x1F300, 0x300}}};
  const auto& [first, count] = kScripts[random() % 16 == 0 ? 3 : random() % 3];
  std::string out;
  lily::utf8::append(first + static_cast<char32_t>(random() % count), out);
  return out;
}

std::string synthetic_tokenizer() {
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same vocabulary every time
  std::set<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.insert(std::string(1, static_cast<char>(b)));
  const std::string letters = "etaoinshrdlucmfwypvbgkjxqz";
  const std::string marks = "\"\\{}[]():;,.<>/=+-_*&^%$#@!?'`~|\n\t ";
  while (tokens.size() < 248'000) {
    std::string token;
    const auto kind = random() % 100;
    if (kind < 55 && random() % 2 == 0) token = " ";
    const std::size_t length = 2 + std::min(random() % 12, random() % 12);
    for (std::size_t i = 0; i < length; ++i) {
      if (kind < 55) token += letters[std::min(random() % 26, random() % 26)];
      if (kind >= 55 && kind < 65) token += marks[random() % marks.size()];
      if (kind >= 65 && token.size() < length) token += wide_character(random);
    }
    if (kind >= 97) token.pop_back();
    tokens.insert(token);
  }
  // Everything but the vocabulary is the embedded model's.
  std::ifstream file(LILY_SOURCE_DIR "/models/tiny/tokenizer.json");
  Json json = Json::parse(file);
  json["added_tokens"] = Json::array();
  json["model"]["merges"] = Json::array();
  nlohmann::json vocab = nlohmann::json::object();  // ordered_json would look through all keys for each
  std::size_t id = 0;
  for (const std::string& token : tokens) {
    std::string spelled;
    for (const char c : token) spelled += printable(static_cast<unsigned char>(c));
    vocab[spelled] = id++;
  }
  json["model"]["vocab"] = "VOCAB";
  std::string text = json.dump();
  text.replace(text.find("\"VOCAB\""), 7, vocab.dump());
  return text;
}

// Reads `text` in pieces of some bytes, as an answer would come, and asks for the mask before each.
void measure(const char* name, lily::GrammarAutomaton& automaton, std::string_view text) {
  for (const char* round : {"first", "again"}) {
    std::vector<double> times;
    lily::TokenMask mask;
    lily::GrammarAutomaton::State state = automaton.start();
    for (std::size_t at = 0; at < text.size(); at += 4) {
      const auto begin = Clock::now();
      automaton.allowed(state, mask);
      state = automaton.read(state, text.substr(at, 4));
      times.push_back(micros(begin));
    }
    const bool whole = automaton.accepts(state);
    double sum = 0;
    for (const double t : times) sum += t;
    std::ranges::sort(times);
    std::printf("%-28s %-6s mean %8.1f us  median %8.1f us  worst %8.1f us  %zu tokens%s\n", name, round,
                sum / static_cast<double>(times.size()), times[times.size() / 2], times.back(), times.size(),
                whole ? "" : "  (not accepted)");
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string file;
  if (argc > 1) {
    std::stringstream buffer;
    buffer << std::ifstream(argv[1]).rdbuf();
    file = buffer.str();
  } else {
    file = synthetic_tokenizer();
  }
  auto tokenizer = lily::Tokenizer::parse(file);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.error().message.c_str());
    return 1;
  }
  const auto begin = Clock::now();
  const auto vocabulary = std::make_shared<const lily::TokenVocabulary>(*tokenizer);
  std::printf("vocabulary of %d: tree of %zu nodes in %.0f ms\n", tokenizer->end(),
              vocabulary->all().nodes().size(), micros(begin) / 1000);
  const auto grammar = [&](const char* schema) {
    return lily::GrammarAutomaton(*lily::json_schema_grammar(Json::parse(schema)), vocabulary);
  };
  const std::string prose =
      "It was a dark and stormy night; the rain fell in torrents, except at occasional intervals.";
  auto any = grammar(R"({"type":"object"})");
  measure("any object", any,
          R"({"title": ")" + prose + R"(", "items": [{"id": 1, "text": "a b c"}, {"id": 2, "text": null}]})");
  auto person =
      grammar(R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0},
      "bio":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","bio","tags"]})");
  measure("schema", person, R"({"name": "Ann", "age": 41, "bio": ")" + prose + R"(", "tags": ["a", "bc"]})");
  measure(
      "schema, Chinese", person,
      R"({"name": "安娜", "age": 41, "bio": "那是一个漆黑的暴风雨之夜；雨倾盆而下。😀", "tags": ["好"]})");
  auto counted = grammar(R"({"type":"string","maxLength":4000})");
  measure("maxLength 4000", counted, "\"" + prose + prose + "\"");
  const Json tools =
      Json::parse(R"([{"type":"function","function":{"name":"write","parameters":{"type":"object",
      "properties":{"path":{"type":"string"},"text":{"type":"string"},"n":{"type":"integer"}},"required":["path","text"]}}}])");
  lily::GrammarAutomaton call(*lily::tool_grammar(tools, {.required = true}), vocabulary);
  measure("forced call", call,
          "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=text>\n" + prose +
              "\n</parameter>\n</function>\n</tool_call>");
  return 0;
}
