// What a client asks for, whichever protocol it speaks: each protocol's file reads its requests into this.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "server/errors.h"
#include "text/chat_template.h"
#include "text/tool_set.h"

namespace lily {

/// Whether the answer may, must or must not call tools.
struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name = {};  ///< of the function, for kNamed
};

/// The tools of a request.
struct ChatTools {
  /// As the template takes them: [{"type": "function", "function": {"name", "description", "parameters"}},
  /// ...].
  std::shared_ptr<const nlohmann::ordered_json> definitions;
  std::shared_ptr<const ToolSet> set;    ///< what its calls are read with; null: there are no tools
  std::vector<std::string> strict = {};  ///< functions whose arguments have to fit their schema
  ToolChoice choice = {};
  bool parallel = true;  ///< else the answer ends with its first call
};

struct ChatRequest {
  /// As the template takes them: content joined to one string, tool-call arguments as objects, reasoning in
  /// reasoning_content, developer as system. Null when there is a `prompt`.
  std::shared_ptr<const nlohmann::ordered_json> messages = {};
  /// Instead of messages: token ids that are continued as they are, without template, think block or tools.
  std::optional<std::vector<TokenId>> prompt = {};
  ChatTools tools = {};
  /// JSON Schema the content has to fit, and where it stands in the request; null: free text.
  std::shared_ptr<const nlohmann::ordered_json> schema = {};
  std::string schema_field = {};
  ChatTemplateOptions template_options = {};
  std::optional<std::int64_t> thinking_budget =
      {};  ///< tokens of reasoning after which the think block is closed
  SamplingParams sampling = {};
  std::vector<std::string> stop = {};
  std::int64_t max_tokens = 0;  ///< 0: none given
  bool ignore_eos = false;      ///< go on past the model's stop ids (benchmarks)
  bool logprobs = false;
  int top_logprobs = 0;
  bool stream = false;
  std::chrono::milliseconds timeout{0};  ///< for the whole request; 0: none given
};

/// What holds where a request says nothing, and what its ids are checked against.
struct ChatDefaults {
  SamplingParams sampling;  ///< the checkpoint's generation_config.json; the seed is drawn for each request
  TokenId vocab_end = 0;    ///< logit_bias takes ids below
};

}  // namespace lily
