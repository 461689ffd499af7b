// What `lily eval` found, as text and as JSON.
#pragma once

#include <optional>
#include <string>

#include "engine/continuation.h"
#include "engine/evaluate.h"

namespace lily {

struct EvalReport {
  std::string model = {};
  std::string backend = {};
  std::string other_model = {};    ///< empty: nothing was compared
  std::string other_backend = {};  ///< or the server's address
  Evaluation evaluation = {};
  std::optional<ContinuationDistance> continuation = {};  ///< of --prompts
};

[[nodiscard]] std::string eval_text(const EvalReport& report);
[[nodiscard]] std::string eval_json(const EvalReport& report);

}  // namespace lily
