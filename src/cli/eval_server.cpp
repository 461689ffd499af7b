#include "cli/eval_server.h"

#include <nlohmann/json.hpp>

#include "cli/bench_http.h"

namespace lily {
namespace {

using Json = nlohmann::json;

// One step in either of the forms that servers use, as text and numbers: completions' parallel arrays
// (OpenAI, vLLM, ours), or chat's list of entries (llama-server).
struct ServedStep {
  std::string token;
  double logprob = 0;
  std::vector<std::pair<std::string, double>> top = {};
};

Result<std::vector<ServedStep>> parse_steps(const Json& logprobs) {
  std::vector<ServedStep> steps;
  if (const auto content = logprobs.find("content"); content != logprobs.end() && content->is_array()) {
    for (const Json& entry : *content) {
      ServedStep step{.token = entry.at("token"), .logprob = entry.at("logprob")};
      for (const Json& other : entry.at("top_logprobs")) {
        step.top.emplace_back(other.at("token"), other.at("logprob"));
      }
      steps.push_back(std::move(step));
    }
    return steps;
  }
  const Json& tokens = logprobs.at("tokens");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ServedStep step{.token = tokens[i], .logprob = logprobs.at("token_logprobs").at(i)};
    for (const auto& [token, logprob] : logprobs.at("top_logprobs").at(i).items()) {
      step.top.emplace_back(token, logprob);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

}  // namespace

Result<ServedModel> ServedModel::create(ApiClient client, const Tokenizer& tokenizer) {
  LILY_TRY(std::string name, served_model(client));
  ServedModel served(std::move(client), std::move(name));
  for (TokenId id = 0; id < tokenizer.end(); ++id) {
    const auto [at, is_new] = served.ids_.emplace(tokenizer.bytes(id), id);
    if (!is_new) at->second = -1;
  }
  return served;
}

TokenId ServedModel::id_of(const std::string& text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? -1 : found->second;
}

Result<std::vector<ContinuationStep>> ServedModel::read_steps(const Json& choice) const {
  std::vector<ServedStep> served;
  try {
    LILY_TRY(served, parse_steps(choice.at("logprobs")));
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kCorrupt, "{}: expected log-probabilities of every token, found {}: {}", address(),
                error.what(), choice.dump().substr(0, 200));
  }
  std::vector<ContinuationStep> steps;
  for (const ServedStep& step : served) {
    ContinuationStep known{.token = id_of(step.token)};
    if (known.token < 0) break;
    for (const auto& [token, logprob] : step.top) {
      if (const TokenId id = id_of(token); id >= 0) {
        known.top.push_back({.id = id, .logprob = static_cast<float>(logprob)});
      }
    }
    steps.push_back(std::move(known));
  }
  return steps;
}

Result<std::vector<ContinuationStep>> ServedModel::continue_text(const std::string& text, std::int64_t tokens,
                                                                 std::int64_t steps) const {
  LILY_TRY(const Json answer, client_.post("/completions", {{"model", name_},
                                                            {"prompt", text},
                                                            {"max_tokens", steps},
                                                            {"temperature", 0},
                                                            {"ignore_eos", true},
                                                            {"logprobs", kComparedTokens}}));
  const std::int64_t read = answer.value(Json::json_pointer("/usage/prompt_tokens"), std::int64_t{-1});
  if (read != tokens) {
    return fail(
        ErrorCode::kCorrupt,
        "{}: expected a server whose tokenizer makes {} tokens of a prompt, found {}: not the same model",
        address(), tokens, read);
  }
  const auto choices = answer.find("choices");
  if (choices == answer.end() || !choices->is_array() || choices->empty()) {
    return fail(ErrorCode::kCorrupt, "{}: expected an answer with a choice, found {}", address(),
                answer.dump().substr(0, 200));
  }
  return read_steps(choices->front());
}

}  // namespace lily
