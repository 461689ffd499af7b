// JSON Schema compiled to a grammar and walked: whatever the schema says, an error or an automaton that leads
// somewhere.
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "text/grammar_automaton.h"
#include "text/json_schema.h"
#include "text/python_json.h"
#include "text/utf8.h"
#include "tiny_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto vocabulary = std::make_shared<const lily::TokenVocabulary>(tiny_tokenizer());
  const auto schema = lily::parse_template_json({reinterpret_cast<const char*>(data), size});
  if (!schema.ok()) return 0;
  auto grammar = lily::json_schema_grammar(*schema);
  if (!grammar.ok()) {
    LILY_CHECK(!grammar.error().message.empty(), "an error without words");
    return 0;
  }
  lily::GrammarAutomaton automaton(std::move(grammar).value(), vocabulary);
  std::mt19937 random(static_cast<unsigned>(size));
  lily::GrammarAutomaton::State state = automaton.start();
  lily::TokenMask mask;
  std::string text;
  for (int step = 0; step < 24 && state != lily::GrammarAutomaton::kDead && !automaton.accepts(state);
       ++step) {
    automaton.allowed(state, mask);
    std::vector<lily::TokenId> ids;
    for (lily::TokenId id = 0; id < tiny_tokenizer().end(); ++id) {
      if (lily::has_bit(mask, id)) ids.push_back(id);
    }
    if (ids.empty()) return 0;  // a schema that nothing fits
    const lily::TokenId id = ids[random() % ids.size()];
    text += tiny_tokenizer().bytes(id);
    state = automaton.read(state, tiny_tokenizer().bytes(id));
    LILY_CHECK(state != lily::GrammarAutomaton::kDead, "an allowed token leads nowhere");
  }
  if (state != lily::GrammarAutomaton::kDead && automaton.accepts(state)) {
    LILY_CHECK(nlohmann::json::accept(text), "no JSON: {}", text);
  }
  return 0;
}
