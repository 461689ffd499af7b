#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/openai.h"

namespace lily {
namespace {

using nlohmann::json;

const ChatIdentity kIdentity{"chatcmpl-1", 1'700'000'000, "tiny"};
const ChatUsage kUsage{
    .prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 6, .reasoning_tokens = 2};

// Whether some value in the tree is null, finish_reason of chunks aside.
bool holds_null(const json& value) {
  if (value.is_null()) return true;
  for (const auto& [key, inner] : value.items()) {
    if (value.is_structured() && key != "finish_reason" && holds_null(inner)) return true;
  }
  return false;
}

json whole(const ChatPiece& answer, ChatEnd::Reason reason = ChatEnd::Reason::kStop, bool logprobs = false) {
  OpenAiDialect dialect(kIdentity, {.chat = {.logprobs = logprobs}});
  return json::parse(dialect.whole(answer, {.reason = reason, .usage = kUsage}));
}

TEST(ChatCompletion, HoldsWhatWasSaidAndNoMore) {
  const auto body = whole({"", "Hello"});
  EXPECT_EQ(body["id"], "chatcmpl-1");
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 1'700'000'000);
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_EQ(body["choices"][0]["message"], json::parse(R"({"role":"assistant","content":"Hello"})"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_FALSE(body["choices"][0].contains("logprobs"));
  EXPECT_FALSE(holds_null(body));
  EXPECT_EQ(body["usage"], json::parse(R"({"prompt_tokens":10,"completion_tokens":6,"total_tokens":16,
      "prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}})"));
}

TEST(ChatCompletion, CutInsideTheReasoningHasEmptyContent) {
  const auto body = whole({"thought", ""}, ChatEnd::Reason::kLength);
  EXPECT_EQ(body["choices"][0]["message"],
            json::parse(
                R"({"role":"assistant","content":"","reasoning_content":"thought","reasoning":"thought"})"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
}

TEST(ChatCompletion, ContentIsNullBesideCallsAlone) {
  const ChatToolCall call{0, "call_1", "f", R"({"a":1})"};
  const auto calls =
      json::parse(R"([{"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}])");
  const auto alone = whole({.calls = {call}}, ChatEnd::Reason::kToolCalls)["choices"][0];
  EXPECT_TRUE(alone["message"]["content"].is_null());
  EXPECT_EQ(alone["message"]["tool_calls"], calls);
  EXPECT_EQ(alone["finish_reason"], "tool_calls");
  const auto both = whole({.content = "Look.", .calls = {call}}, ChatEnd::Reason::kToolCalls)["choices"][0];
  EXPECT_EQ(both["message"]["content"], "Look.");
  EXPECT_EQ(both["message"]["tool_calls"], calls);
}

TEST(ChatPieces, AddUp) {
  ChatPiece all{.reasoning = "r", .calls = {{0, "call_1", "f", "{"}}};
  all.append({.content = "c", .calls = {{0, "", "", "}"}, {1, "call_2", "g", "{}"}}});
  EXPECT_EQ(all.reasoning, "r");
  EXPECT_EQ(all.content, "c");
  ASSERT_EQ(all.calls.size(), 2U);
  EXPECT_EQ(all.calls[0].arguments, "{}");
  EXPECT_EQ(all.calls[1].name, "g");
}

TEST(ChatCompletion, LogprobsKeepTheBytesOfPartialTokens) {
  const std::vector<ChatLogprob> logprobs = {
      {"\xF0\x9F", -0.25F, {{"\xF0\x9F", -0.25F}, {"a", -std::numeric_limits<float>::infinity()}}},
      {"\x98\x80", -0.5F, {}}};
  const auto entries = whole({.content = "\xF0\x9F\x98\x80", .logprobs = logprobs}, ChatEnd::Reason::kStop,
                             true)["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0]["bytes"], json::parse("[240,159]"));
  EXPECT_EQ(entries[1]["bytes"], json::parse("[152,128]"));
  EXPECT_EQ(entries[0]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(entries[0]["logprob"], -0.25);
  EXPECT_EQ(entries[0]["top_logprobs"][0]["bytes"], entries[0]["bytes"]);
  EXPECT_EQ(entries[0]["top_logprobs"][1]["logprob"], -9999.0);
  EXPECT_EQ(entries[1]["top_logprobs"], json::array());
}

// The JSON of each event; "[DONE]" as a string.
std::vector<json> events(const std::string& stream) {
  std::vector<json> out;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string line = stream.substr(at, end - at);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    out.push_back(line == "data: [DONE]" ? json("[DONE]") : json::parse(line.substr(6)));
    at = end + 2;
  }
  return out;
}

TEST(ChatChunks, HoldOneThingEach) {
  OpenAiDialect dialect(kIdentity, {.include_usage = true});
  const auto role = events(dialect.begin(kUsage)).at(0);
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["delta"], json::parse(R"({"role":"assistant"})"));
  EXPECT_TRUE(role["choices"][0]["finish_reason"].is_null());

  const auto content = events(dialect.piece({"", "x"})).at(0);
  EXPECT_EQ(content["choices"][0]["delta"], json::parse(R"({"content":"x"})"));
  const auto reasoning = events(dialect.piece({"r", ""})).at(0);
  EXPECT_EQ(reasoning["choices"][0]["delta"], json::parse(R"({"reasoning_content":"r","reasoning":"r"})"));
  const auto call = events(dialect.piece({.calls = {{1, "call_1", "f", ""}}})).at(0);
  EXPECT_EQ(call["choices"][0]["delta"],
            json::parse(R"({"tool_calls":[{"index":1,"id":"call_1","type":"function",
      "function":{"name":"f","arguments":""}}]})"));
  const auto arguments = events(dialect.piece({.calls = {{1, "", "", "{}"}}})).at(0);
  EXPECT_EQ(arguments["choices"][0]["delta"],
            json::parse(R"({"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]})"));

  const auto tail = events(dialect.end({.reason = ChatEnd::Reason::kLength, .usage = kUsage}));
  ASSERT_EQ(tail.size(), 3U);
  EXPECT_EQ(tail[0]["choices"][0]["delta"], json::object());
  EXPECT_EQ(tail[0]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(tail[1]["choices"], json::array());
  EXPECT_EQ(tail[1]["usage"]["total_tokens"], 16);
  EXPECT_EQ(tail[2], "[DONE]");
  for (const auto& chunk : {role, content, reasoning, call, arguments, tail[0], tail[1]})
    EXPECT_FALSE(holds_null(chunk)) << chunk;
  for (const auto& chunk : {role, content, reasoning, call, tail[0]})
    EXPECT_FALSE(chunk.contains("usage")) << chunk;
}

TEST(ApiErrors, HaveOpenAisShape) {
  const auto body = json::parse(error_json(invalid_field("top_p", "expected a number")));
  EXPECT_EQ(body["error"]["message"], "top_p: expected a number");
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["param"], "top_p");
  EXPECT_TRUE(json::accept(error_json({.message = "bytes \xFF\xC0\x80"})));
}

TEST(ApiErrors, TellTheClientsFaultFromOurs) {
  const ApiError theirs = to_api_error(fail(ErrorCode::kInvalidArgument, "the prompt has 9 tokens"));
  EXPECT_EQ(theirs.status, 400);
  EXPECT_EQ(theirs.message, "the prompt has 9 tokens");
  const ApiError ours = to_api_error(fail(ErrorCode::kInternal, "secret /path"));
  EXPECT_EQ(ours.status, 500);
  EXPECT_EQ(ours.message.find("secret"), std::string::npos);
  EXPECT_EQ(to_api_error(fail(ErrorCode::kExhausted, "queue")).status, 503);
  EXPECT_EQ(to_api_error(fail(ErrorCode::kCancelled, "drain")).status, 503);
}

TEST(Models, AreListedAndDescribed) {
  const ModelCard card{"tiny", 5, 4096};
  const auto list = json::parse(model_list_json({card}));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0], json::parse(model_json(card)));
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["object"], "model");
}

}  // namespace
}  // namespace lily
