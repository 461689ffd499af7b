// The tools of a request, in the shapes that clients send, made into what template and parser take.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "server/chat_request.h"
#include "server/field_reader.h"

namespace lily {

/// One function, whichever protocol it came from.
struct ToolDefinition {
  std::string name = {};
  nlohmann::ordered_json function =
      {};  ///< {"name", "description", "parameters"} and what else the client sent
  bool strict = false;
};

/// OpenAI's `tools` and `tool_choice` (also in the flat shape of the responses API), the older `functions`
/// and `function_call`, and `parallel_tool_calls`.
void read_tools(FieldReader& fields, std::optional<ApiError>& error, ChatTools& out);

/// Checks a definition's name and parameters, which stand at `path` in the request.
void check_tool(const ToolDefinition& tool, const std::string& path, std::optional<ApiError>& error);

/// Puts checked definitions in place for the choice made: without a tool to call there are none in the
/// prompt, and calls are not looked for. A choice that cannot be met is an error of `choice_field`.
void set_tools(std::vector<ToolDefinition> tools, const std::string& choice_field,
               std::optional<ApiError>& error, ChatTools& out);

}  // namespace lily
