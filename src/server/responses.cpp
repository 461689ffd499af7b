#include "server/responses.h"

#include <fmt/format.h>

#include <utility>

#include "server/chat_messages.h"
#include "server/chat_tools.h"
#include "server/json.h"
#include "server/request_fields.h"
#include "server/sse.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// The items of a conversation, made into chat messages: what an assistant thought, said and called in a row
// is one message; what developers and systems say before anything else is one, behind the instructions.
class InputReader {
 public:
  InputReader(std::string instructions, std::optional<ApiError>& error)
      : system_(std::move(instructions)), error_(error) {}

  Json read(const Json& input) {
    if (input.is_string()) {
      add({{"role", "user"}, {"content", input}});
    } else if (input.is_array()) {
      for (std::size_t i = 0; i < input.size() && !error_; ++i) item(input[i], fmt::format("input[{}]", i));
    } else {
      error_ = invalid_field("input", "expected a string or an array of items, found " + describe(input));
    }
    if (!system_.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", system_}});
    return std::move(messages_);
  }

 private:
  void item(const Json& item, const std::string& path) {
    FieldReader fields(item, path, error_);
    std::string type = "message";
    fields.string("type", type);
    if (error_) return;
    if (type == "message") return message(fields);
    if (type == "function_call") return call(fields);
    if (type == "function_call_output") {
      return add({{"role", "tool"}, {"content", text(fields, "output")}});
    }
    if (type == "reasoning") {
      Json& turn = assistant();
      std::string thought = text(fields, "content");
      if (thought.empty()) thought = text(fields, "summary");
      turn["reasoning_content"] = turn.value("reasoning_content", "") + thought;
      return;
    }
    fields.refuse("type", "expected message, function_call, function_call_output or reasoning, found " +
                              describe(Json(type)));
  }

  void message(FieldReader& fields) {
    std::string role;
    fields.string("role", role);
    const std::string content = text(fields, "content");
    if (error_) return;
    if (role == "assistant") {
      Json& turn = assistant();
      turn["content"] = turn["content"].get<std::string>() + content;
      return;
    }
    if (role == "developer") role = "system";
    if (role == "system" && messages_.empty()) {
      system_ += (system_.empty() ? "" : "\n\n") + content;
    } else {
      add({{"role", role}, {"content", content}});
    }
  }

  void call(FieldReader& fields) {
    std::string name;
    fields.string("name", name);
    if (!error_ && name.empty()) fields.fail("name", "expected the name of a function, found nothing");
    const Json arguments = normalize_arguments(fields, error_);
    assistant()["tool_calls"].push_back(
        {{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}});
  }

  // A string, or parts with text in them.
  std::string text(const FieldReader& fields, const char* name) {
    const Json* value = fields.find(name);
    if (value == nullptr) return "";
    if (value->is_string()) return value->get<std::string>();
    const std::string path = fields.path_of(name);
    if (!value->is_array()) {
      error_ = invalid_field(path, "expected a string or an array of parts, found " + describe(*value));
      return "";
    }
    std::string out;
    for (std::size_t i = 0; i < value->size() && !error_; ++i) {
      FieldReader part((*value)[i], fmt::format("{}[{}]", path, i), error_);
      std::string type;
      part.string("type", type);
      const char* field = type == "refusal" ? "refusal" : "text";
      if (!error_ && type != "refusal" && !type.ends_with("text")) {
        part.refuse("type", "expected text (this server takes text alone), found " + describe(Json(type)));
      }
      std::string words;
      part.string(field, words);
      out += words;
    }
    return out;
  }

  void add(Json message) { messages_.push_back(std::move(message)); }

  Json& assistant() {
    if (messages_.empty() || messages_.back()["role"] != "assistant") {
      add({{"role", "assistant"}, {"content", ""}});
    }
    return messages_.back();
  }

  std::string system_;
  std::optional<ApiError>& error_;
  Json messages_ = Json::array();
};

void refuse_state(FieldReader& fields) {
  for (const auto* name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.find(name) != nullptr) {
      fields.refuse(name, "this server keeps no conversations: send the whole input with each request");
    }
  }
  bool background = false;
  fields.boolean("background", background);
  if (background) fields.refuse("background", "not supported: wait for the answer, or stream it");
}

Json usage_json(const ChatUsage& usage) {
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

Json text_part(const char* type, const std::string& text) {
  Json part = {{"type", type}, {"text", text}};
  if (std::string_view(type) == "output_text") part["annotations"] = Json::array();
  return part;
}

}  // namespace

std::variant<ResponsesRequest, ApiError> parse_responses_request(std::string_view body,
                                                                 const ChatDefaults& defaults) {
  auto parsed = parse_body(body);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const Json& json = std::get<Json>(parsed);
  std::optional<ApiError> error;
  FieldReader fields(json, "", error);
  ResponsesRequest request;
  ChatRequest& chat = request.chat;
  std::string model;
  fields.string("model", model);
  refuse_state(fields);
  read_sampling(fields, defaults, chat.sampling);
  read_max_tokens(fields, {"max_output_tokens"}, chat.max_tokens);
  fields.boolean("stream", chat.stream);
  read_thinking(fields, error, chat);
  read_tools(fields, error, chat.tools);
  if (const Json* text = fields.find("text")) {
    const FieldReader inner(*text, "text", error);
    if (const Json* format = inner.find("format")) {
      FieldReader reader(*format, "text.format", error);
      read_format(reader, error, chat);
    }
  }
  std::string instructions;
  fields.string("instructions", instructions);
  const Json* input = fields.find("input");
  if (error) return *std::move(error);
  if (input == nullptr)
    return invalid_field("input", "expected a string or an array of items, found nothing");
  chat.messages = std::make_shared<const Json>(InputReader(std::move(instructions), error).read(*input));
  if (error) return *std::move(error);
  for (const auto* name : {"instructions", "max_output_tokens", "metadata", "parallel_tool_calls",
                           "temperature", "text", "tool_choice", "tools", "top_p", "reasoning"}) {
    if (json.contains(name)) request.echo[name] = json[name];
  }
  return request;
}

ResponsesDialect::ResponsesDialect(ChatIdentity identity, const ResponsesRequest& request)
    : identity_(std::move(identity)), echo_(request.echo) {}

Json ResponsesDialect::response(const char* status) const {
  Json out = {{"id", identity_.id},       {"object", "response"},   {"created_at", identity_.created},
              {"status", status},         {"error", nullptr},       {"incomplete_details", nullptr},
              {"model", identity_.model}, {"output", output_},      {"parallel_tool_calls", true},
              {"tool_choice", "auto"},    {"tools", Json::array()}, {"store", false}};
  if (!echo_.is_null()) out.update(echo_);
  return out;
}

std::string ResponsesDialect::event(const char* type, Json fields) {
  Json out = {{"type", type}, {"sequence_number", sequence_++}};
  out.update(fields);
  return sse_event(type, dump_json(out));
}

Json ResponsesDialect::place() const {
  return {{"item_id", output_.back()["id"]}, {"output_index", output_.size() - 1}};
}

void ResponsesDialect::open(Item kind, Json item, std::string& out) {
  close("completed", out);
  open_ = kind;
  item["status"] = "in_progress";
  output_.push_back(item);
  out +=
      event("response.output_item.added", {{"output_index", output_.size() - 1}, {"item", std::move(item)}});
}

void ResponsesDialect::close(const char* status, std::string& out) {
  if (open_ == Item::kNone) return;
  Json& item = output_.back();
  item["status"] = status;
  Json fields = place();
  if (open_ == Item::kCall) {
    fields["arguments"] = item["arguments"];
    out += event("response.function_call_arguments.done", std::move(fields));
  } else {
    fields["content_index"] = 0;
    const Json& part = item["content"][0];
    Json text = fields;
    text["text"] = part["text"];
    out += event(open_ == Item::kMessage ? "response.output_text.done" : "response.reasoning_text.done",
                 std::move(text));
    fields["part"] = part;
    out += event("response.content_part.done", std::move(fields));
  }
  out += event("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
  open_ = Item::kNone;
}

// A delta of the open item's only part, which begins with the first of them.
void ResponsesDialect::add_text(const char* type, const std::string& text, std::string& out) {
  Json& content = output_.back()["content"];
  Json fields = place();
  fields["content_index"] = 0;
  if (content.empty()) {
    content.push_back(text_part(type, ""));
    Json added = fields;
    added["part"] = content[0];
    out += event("response.content_part.added", std::move(added));
  }
  content[0]["text"].get_ref<std::string&>() += text;
  fields["delta"] = text;
  out += event(fmt::format("response.{}.delta", type).c_str(), std::move(fields));
}

std::string ResponsesDialect::begin(const ChatUsage&) {
  std::string out = event("response.created", {{"response", response("in_progress")}});
  return out + event("response.in_progress", {{"response", response("in_progress")}});
}

std::string ResponsesDialect::piece(const ChatPiece& piece) {
  std::string out;
  if (!piece.reasoning.empty()) {
    if (open_ != Item::kReasoning) {
      open(Item::kReasoning,
           {{"id", random_id("rs_")},
            {"type", "reasoning"},
            {"summary", Json::array()},
            {"content", Json::array()}},
           out);
    }
    add_text("reasoning_text", piece.reasoning, out);
  }
  if (!piece.content.empty()) {
    if (open_ != Item::kMessage) {
      open(
          Item::kMessage,
          {{"id", random_id("msg_")}, {"type", "message"}, {"role", "assistant"}, {"content", Json::array()}},
          out);
    }
    add_text("output_text", piece.content, out);
  }
  for (const ChatToolCall& call : piece.calls) {
    if (!call.id.empty()) {
      open(Item::kCall,
           {{"id", random_id("fc_")},
            {"type", "function_call"},
            {"call_id", call.id},
            {"name", call.name},
            {"arguments", ""}},
           out);
    }
    if (call.arguments.empty()) continue;
    output_.back()["arguments"].get_ref<std::string&>() += call.arguments;
    Json fields = place();
    fields["delta"] = call.arguments;
    out += event("response.function_call_arguments.delta", std::move(fields));
  }
  return out;
}

std::string ResponsesDialect::end(const ChatEnd& end) {
  const bool cut = end.reason == ChatEnd::Reason::kLength;
  std::string out;
  close(cut ? "incomplete" : "completed", out);
  Json final = response(cut ? "incomplete" : "completed");
  if (cut) final["incomplete_details"] = {{"reason", "max_output_tokens"}};
  final["usage"] = usage_json(end.usage);
  return out + event(cut ? "response.incomplete" : "response.completed", {{"response", std::move(final)}});
}

std::string ResponsesDialect::whole(const ChatPiece& answer, const ChatEnd& end) {
  std::string unused = piece(answer);
  const bool cut = end.reason == ChatEnd::Reason::kLength;
  close(cut ? "incomplete" : "completed", unused);
  Json out = response(cut ? "incomplete" : "completed");
  if (cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["usage"] = usage_json(end.usage);
  return dump_json(out);
}

std::string ResponsesDialect::break_off(const ApiError& error) {
  Json failed = response("failed");
  failed["error"] = {{"code", error.code.empty() ? "server_error" : error.code}, {"message", error.message}};
  return event("response.failed", {{"response", std::move(failed)}});
}

}  // namespace lily
