#include "server/anthropic.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "server/billing_line.h"
#include "server/chat_tools.h"
#include "server/json.h"
#include "server/request_fields.h"
#include "server/sse.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

class MessageReader {
 public:
  explicit MessageReader(std::optional<ApiError>& error) : error_(error) {}

  // A string, or blocks of text.
  std::string text(const Json& content, const std::string& path) {
    if (content.is_null()) return "";
    if (content.is_string()) return content.get<std::string>();
    std::string out;
    each(content, path, [&](const std::string& type, FieldReader& block) {
      if (type != "text") return block.refuse("type", "expected \"text\", found " + describe(Json(type)));
      std::string part;
      block.string("text", part);
      out += part;
    });
    return out;
  }

  std::string system(const Json& system) {
    if (!system.is_array()) return text(system, "system");
    std::string out;
    for (std::size_t i = 0; i < system.size() && !error_; ++i) {
      const std::string block = text(Json::array({system[i]}), fmt::format("system[{}]", i));
      const std::string_view part = without_billing_line(block);
      if (part.empty()) continue;
      if (!out.empty()) out += "\n\n";
      out += part;
    }
    return out;
  }

  void message(const Json& message, const std::string& path, Json& out) {
    FieldReader fields(message, path, error_);
    std::string role;
    fields.string("role", role);
    if (error_) return;
    if (role != "user" && role != "assistant") {
      return fields.fail("role", "expected user or assistant, found " + describe(Json(role)));
    }
    const Json* content = fields.find("content");
    const Json& given = content != nullptr ? *content : Json("");
    if (role == "user") {
      user(given, fields.path_of("content"), out);
    } else {
      assistant(given, fields.path_of("content"), out);
    }
  }

 private:
  template <class Take>
  void each(const Json& blocks, const std::string& path, const Take& take) {
    if (!blocks.is_array()) {
      error_ = invalid_field(path, "expected a string or an array of blocks, found " + describe(blocks));
      return;
    }
    for (std::size_t i = 0; i < blocks.size() && !error_; ++i) {
      FieldReader block(blocks[i], fmt::format("{}[{}]", path, i), error_);
      std::string type;
      block.string("type", type);
      if (!error_) take(type, block);
    }
  }

  // Tool results become messages of their own, before the text beside them.
  void user(const Json& content, const std::string& path, Json& out) {
    if (content.is_string()) {
      out.push_back({{"role", "user"}, {"content", content}});
      return;
    }
    std::string text;
    bool has_text = content.empty();
    each(content, path, [&](const std::string& type, FieldReader& block) {
      if (type == "tool_result") {
        const Json* result = block.find("content");
        out.push_back({{"role", "tool"},
                       {"content", result == nullptr ? "" : this->text(*result, block.path_of("content"))}});
        return;
      }
      if (type != "text") {
        return block.refuse("type", "expected text or tool_result (this server takes text alone), found " +
                                        describe(Json(type)));
      }
      std::string part;
      block.string("text", part);
      text += part;
      has_text = true;
    });
    if (has_text) out.push_back({{"role", "user"}, {"content", text}});
  }

  void assistant(const Json& content, const std::string& path, Json& out) {
    Json message = {{"role", "assistant"}, {"content", ""}};
    if (content.is_string()) {
      message["content"] = content;
      out.push_back(std::move(message));
      return;
    }
    std::string text;
    std::string thinking;
    each(content, path, [&](const std::string& type, FieldReader& block) {
      std::string part;
      if (type == "text") {
        block.string("text", part);
        text += part;
      } else if (type == "thinking") {
        block.string("thinking", part);
        thinking += part;
      } else if (type == "tool_use") {
        block.string("name", part);
        const Json* input = block.find("input");
        if (part.empty()) return block.fail("name", "expected the name of a tool");
        if (input != nullptr && !input->is_object()) {
          return block.fail("input", "expected an object, found " + describe(*input));
        }
        message["tool_calls"].push_back(
            {{"type", "function"},
             {"function", {{"name", part}, {"arguments", input != nullptr ? *input : Json::object()}}}});
      } else if (type != "redacted_thinking") {
        block.refuse("type", "expected text, thinking or tool_use, found " + describe(Json(type)));
      }
    });
    message["content"] = text;
    if (!thinking.empty()) message["reasoning_content"] = thinking;
    out.push_back(std::move(message));
  }

  std::optional<ApiError>& error_;
};

void read_messages(FieldReader& fields, std::optional<ApiError>& error, ChatRequest& out) {
  MessageReader reader(error);
  Json messages = Json::array();
  if (const Json* system = fields.find("system")) {
    const std::string text = reader.system(*system);
    if (!text.empty()) messages.push_back({{"role", "system"}, {"content", text}});
  }
  const Json* list = fields.find("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    return fields.fail("messages",
                       "expected a non-empty array, found " + (list == nullptr    ? "nothing"
                                                               : list->is_array() ? "an empty one"
                                                                                  : describe(*list)));
  }
  for (std::size_t i = 0; i < list->size() && !error; ++i) {
    reader.message((*list)[i], fmt::format("messages[{}]", i), messages);
  }
  out.messages = std::make_shared<const Json>(std::move(messages));
}

ToolDefinition read_tool(const Json& tool, const std::string& path, std::optional<ApiError>& error) {
  FieldReader fields(tool, path, error);
  std::string type = "custom";
  fields.string("type", type);
  if (!error && type != "custom") {
    fields.refuse("type", "expected a tool of the client's (\"custom\"), found " + describe(Json(type)));
  }
  ToolDefinition out;
  out.function = Json::object();
  fields.string("name", out.name);
  out.function["name"] = out.name;
  if (const Json* description = fields.find("description")) out.function["description"] = *description;
  if (const Json* schema = fields.find("input_schema")) out.function["parameters"] = *schema;
  fields.boolean("strict", out.strict);
  check_tool(out, path, error);
  return out;
}

void read_tool_choice(FieldReader& fields, std::optional<ApiError>& error, ChatTools& out) {
  const Json* choice = fields.find("tool_choice");
  if (choice == nullptr) return;
  FieldReader inner(*choice, "tool_choice", error);
  std::string type;
  inner.string("type", type);
  bool one = false;
  inner.boolean("disable_parallel_tool_use", one);
  out.parallel = !one;
  if (type == "none") {
    out.choice.kind = ToolChoice::Kind::kNone;
  } else if (type == "any") {
    out.choice.kind = ToolChoice::Kind::kRequired;
  } else if (type == "tool") {
    out.choice.kind = ToolChoice::Kind::kNamed;
    inner.string("name", out.choice.name);
  } else if (!error && type != "auto") {
    inner.fail("type", "expected auto, any, tool or none, found " + describe(Json(type)));
  }
}

void read_anthropic_tools(FieldReader& fields, std::optional<ApiError>& error, ChatTools& out) {
  std::vector<ToolDefinition> tools;
  if (const Json* list = fields.find("tools")) {
    if (!list->is_array()) return fields.fail("tools", "expected an array, found " + describe(*list));
    for (std::size_t i = 0; i < list->size() && !error; ++i) {
      tools.push_back(read_tool((*list)[i], fmt::format("tools[{}]", i), error));
    }
  }
  read_tool_choice(fields, error, out);
  set_tools(std::move(tools), "tool_choice", error, out);
}

const char* stop_reason(const ChatEnd& end) {
  switch (end.reason) {
    case ChatEnd::Reason::kStop:
      return "end_turn";
    case ChatEnd::Reason::kStopString:
      return "stop_sequence";
    case ChatEnd::Reason::kLength:
      return "max_tokens";
    case ChatEnd::Reason::kToolCalls:
      return "tool_use";
  }
  return "end_turn";
}

Json stop_sequence(const ChatEnd& end) {
  return end.reason == ChatEnd::Reason::kStopString ? Json(end.stop_string) : Json(nullptr);
}

Json usage_json(const ChatUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", usage.cached_tokens},
          {"output_tokens", usage.completion_tokens}};
}

std::string tool_id(const std::string& call_id) {
  return "toolu_" + call_id.substr(call_id.find('_') + 1);
}

Json message_json(const ChatIdentity& identity, Json content) {
  return {{"id", identity.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", identity.model},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

std::string event(const char* type, Json fields) {
  Json out = {{"type", type}};
  out.update(fields);
  return sse_event(type, dump_json(out));
}

// Conversations that the server keeps. Under this code the protocol's clients know how to go on without.
constexpr const char* kNoThreads = "thread_unsupported_request";

void refuse_threads(const FieldReader& fields, std::optional<ApiError>& error) {
  if (fields.find("thread") == nullptr) return;
  error = ApiError{
      .message = "thread: this server keeps no conversations: send the whole of it with each request",
      .param = "thread",
      .code = kNoThreads};
}

Json error_body(const ApiError& error) {
  const char* type = "api_error";
  if (error.status == 400) type = "invalid_request_error";
  if (error.status == 401) type = "authentication_error";
  if (error.status == 403) type = "permission_error";
  if (error.status == 404) type = "not_found_error";
  if (error.status == 413) type = "request_too_large";
  if (error.status == 429) type = "rate_limit_error";
  if (error.status == 503) type = "overloaded_error";
  Json body = {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
  if (error.code == kNoThreads) {
    body["error"]["details"] = {{"error_code", kNoThreads}, {"unsupported", {"thread"}}};
  }
  return body;
}

}  // namespace

std::variant<ChatRequest, ApiError> parse_messages_request(std::string_view body,
                                                           const ChatDefaults& defaults) {
  auto parsed = parse_body(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  std::optional<ApiError> error;
  FieldReader fields(std::get<Json>(parsed), "", error);
  ChatRequest request;
  refuse_threads(fields, error);
  std::string model;
  fields.string("model", model);
  read_sampling(fields, defaults, request.sampling);
  read_max_tokens(fields, {"max_tokens"}, request.max_tokens);
  read_stop(fields, "stop_sequences", request.stop);
  fields.boolean("stream", request.stream);
  request.template_options.enable_thinking = false;  // in this protocol thinking is asked for
  read_thinking(fields, error, request);
  read_output_config(fields, error, request);
  read_anthropic_tools(fields, error, request.tools);
  read_messages(fields, error, request);
  if (error) return *std::move(error);
  return request;
}

HttpResponse anthropic_error(const ApiError& error) {
  HttpResponse response = error_response(error);
  response.body = dump_json(error_body(error));
  return response;
}

std::string AnthropicDialect::whole(const ChatPiece& answer, const ChatEnd& end) {
  Json content = Json::array();
  if (!answer.reasoning.empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", answer.reasoning}, {"signature", ""}});
  }
  if (!answer.content.empty()) content.push_back({{"type", "text"}, {"text", answer.content}});
  for (const ChatToolCall& call : answer.calls) {
    content.push_back({{"type", "tool_use"},
                       {"id", tool_id(call.id)},
                       {"name", call.name},
                       {"input", Json::parse(call.arguments, nullptr, false)}});
  }
  Json out = message_json(identity_, std::move(content));
  out["stop_reason"] = stop_reason(end);
  out["stop_sequence"] = stop_sequence(end);
  out["usage"] = usage_json(end.usage);
  return dump_json(out);
}

std::string AnthropicDialect::begin(const ChatUsage& prompt) {
  Json message = message_json(identity_, Json::array());
  message["usage"] = usage_json(prompt);
  return event("message_start", {{"message", std::move(message)}}) + event("ping", Json::object());
}

void AnthropicDialect::open(Block kind, const Json& start, std::string& out) {
  if (block_ == kind && kind != Block::kTool) return;
  close(out);
  block_ = kind;
  ++index_;
  out += event("content_block_start", {{"index", index_}, {"content_block", start}});
}

void AnthropicDialect::close(std::string& out) {
  if (block_ == Block::kNone) return;
  if (block_ == Block::kThinking) delta({{"type", "signature_delta"}, {"signature", ""}}, out);
  out += event("content_block_stop", {{"index", index_}});
  block_ = Block::kNone;
}

void AnthropicDialect::delta(const Json& delta, std::string& out) const {
  out += event("content_block_delta", {{"index", index_}, {"delta", delta}});
}

std::string AnthropicDialect::piece(const ChatPiece& piece) {
  std::string out;
  if (!piece.reasoning.empty()) {
    open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}}, out);
    delta({{"type", "thinking_delta"}, {"thinking", piece.reasoning}}, out);
  }
  if (!piece.content.empty()) {
    open(Block::kText, {{"type", "text"}, {"text", ""}}, out);
    delta({{"type", "text_delta"}, {"text", piece.content}}, out);
  }
  for (const ChatToolCall& call : piece.calls) {
    if (!call.id.empty()) {
      open(Block::kTool,
           {{"type", "tool_use"}, {"id", tool_id(call.id)}, {"name", call.name}, {"input", Json::object()}},
           out);
    }
    if (!call.arguments.empty()) {
      delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}}, out);
    }
  }
  return out;
}

std::string AnthropicDialect::end(const ChatEnd& end) {
  std::string out;
  close(out);
  out += event("message_delta",
               {{"delta", {{"stop_reason", stop_reason(end)}, {"stop_sequence", stop_sequence(end)}}},
                {"usage", usage_json(end.usage)}});
  return out + event("message_stop", Json::object());
}

std::string AnthropicDialect::break_off(const ApiError& error) {
  return sse_event("error", dump_json(error_body(error)));
}

}  // namespace lily
