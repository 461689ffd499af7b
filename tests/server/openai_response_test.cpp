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

TEST(ChatCompletion, HoldsWhatWasSaidAndNoMore) {
  const auto body = json::parse(chat_completion_json(kIdentity, {"", "Hello", {}}, "stop", kUsage, false));
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
  const auto message = json::parse(
      chat_completion_json(kIdentity, {"thought", "", {}}, "length", kUsage, false))["choices"][0]["message"];
  EXPECT_EQ(message, json::parse(R"({"role":"assistant","content":"","reasoning_content":"thought",
                                     "reasoning":"thought"})"));
}

TEST(ChatCompletion, LogprobsKeepTheBytesOfPartialTokens) {
  const std::vector<ChatLogprob> logprobs = {
      {"\xF0\x9F", -0.25F, {{"\xF0\x9F", -0.25F}, {"a", -std::numeric_limits<float>::infinity()}}},
      {"\x98\x80", -0.5F, {}}};
  const auto entries = json::parse(chat_completion_json(kIdentity, {"", "\xF0\x9F\x98\x80", logprobs}, "stop",
                                                        kUsage, true))["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0]["bytes"], json::parse("[240,159]"));
  EXPECT_EQ(entries[1]["bytes"], json::parse("[152,128]"));
  EXPECT_EQ(entries[0]["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(entries[0]["logprob"], -0.25);
  EXPECT_EQ(entries[0]["top_logprobs"][0]["bytes"], entries[0]["bytes"]);
  EXPECT_EQ(entries[0]["top_logprobs"][1]["logprob"], -9999.0);
  EXPECT_EQ(entries[1]["top_logprobs"], json::array());
}

TEST(ChatChunks, HoldOneThingEach) {
  const auto role = json::parse(chat_role_chunk(kIdentity));
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["delta"], json::parse(R"({"role":"assistant"})"));
  EXPECT_TRUE(role["choices"][0]["finish_reason"].is_null());

  const auto content = json::parse(chat_piece_chunk(kIdentity, {"", "x", {}}));
  EXPECT_EQ(content["choices"][0]["delta"], json::parse(R"({"content":"x"})"));
  const auto reasoning = json::parse(chat_piece_chunk(kIdentity, {"r", "", {}}));
  EXPECT_EQ(reasoning["choices"][0]["delta"], json::parse(R"({"reasoning_content":"r","reasoning":"r"})"));

  const auto finish = json::parse(chat_finish_chunk(kIdentity, "length"));
  EXPECT_EQ(finish["choices"][0]["delta"], json::object());
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "length");

  const auto usage = json::parse(chat_usage_chunk(kIdentity, kUsage));
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 16);
  for (const auto& chunk : {role, content, reasoning, finish, usage})
    EXPECT_FALSE(holds_null(chunk)) << chunk;
  for (const auto& chunk : {role, content, reasoning, finish}) EXPECT_FALSE(chunk.contains("usage")) << chunk;
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
  const auto list = json::parse(model_list_json(card));
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0], json::parse(model_json(card)));
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["object"], "model");
}

}  // namespace
}  // namespace lily
