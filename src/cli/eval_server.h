// Greedy continuations as a server of OpenAI's API gives them, with the likeliest tokens of each step.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "cli/api_client.h"
#include "engine/continuation.h"
#include "text/tokenizer.h"

namespace lily {

class ServedModel {
 public:
  /// `tokenizer`: the local model's, which has to be the server's too; it must outlive this.
  static Result<ServedModel> create(ApiClient client, const Tokenizer& tokenizer);

  /// Continues `text`, which is `tokens` long here and has to be there, by `steps` tokens. Ends before a
  /// token that has no text of its own (a part of a character): nobody can say which it was.
  [[nodiscard]] Result<std::vector<ContinuationStep>> continue_text(const std::string& text,
                                                                    std::int64_t tokens,
                                                                    std::int64_t steps) const;

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& address() const { return client_.base(); }

 private:
  ServedModel(ApiClient client, std::string name) : client_(std::move(client)), name_(std::move(name)) {}
  /// The id of a token by its text; -1 if there is none or no single one.
  [[nodiscard]] TokenId id_of(const std::string& text) const;
  [[nodiscard]] Result<std::vector<ContinuationStep>> read_steps(const nlohmann::json& choice) const;

  ApiClient client_;
  std::string name_;
  std::unordered_map<std::string, TokenId> ids_;
};

}  // namespace lily
