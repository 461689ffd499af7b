#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/openai.h"

namespace lily {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

const ChatDefaults kDefaults{.sampling = {.temperature = 0.9F, .top_p = 0.95F, .top_k = 20, .logit_bias = {}},
                             .vocab_end = 1000};

// A request with one user message and the given fields.
std::string request_text(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}

ChatRequest parse_whole(const std::string& body) {
  auto parsed = parse_chat_request(body, kDefaults);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<OpenAiChat>(std::move(parsed)).chat;
}

ChatRequest parse(const std::string& fields) {
  return parse_whole(request_text(fields));
}

ApiError refuse_whole(const std::string& body) {
  auto parsed = parse_chat_request(body, kDefaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return *error;
  ADD_FAILURE() << body << ": was accepted";
  return {};
}

// Expects a 400 that names `field`.
void expect_refused(const std::string& fields, const std::string& field) {
  const ApiError error = refuse_whole(request_text(fields));
  EXPECT_EQ(error.status, 400) << fields;
  EXPECT_EQ(error.param, field) << fields;
  EXPECT_THAT(error.message, HasSubstr(field)) << fields;
}

Json messages(const std::string& list) {
  return *parse_whole(R"({"messages":)" + list + "}").messages;
}

std::string message_error(const std::string& list) {
  return refuse_whole(R"({"messages":)" + list + "}").param;
}

TEST(ChatRequest, TakesTheCheckpointsDefaults) {
  const ChatRequest request = parse("");
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.9F);
  EXPECT_FLOAT_EQ(request.sampling.top_p, 0.95F);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.template_options.enable_thinking);
}

TEST(ChatRequest, ReadsEverySamplingField) {
  const auto sampling =
      parse(R"("temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"presence_penalty":1.5,
      "frequency_penalty":-2,"repetition_penalty":1.25,"repetition_context_size":64,"seed":11,
      "logit_bias":{"5":-100,"999":2.5})")
          .sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 0.5F);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.125F);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, 1.5F);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, -2.0F);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.25F);
  EXPECT_EQ(sampling.repetition_window, 64);
  EXPECT_EQ(sampling.seed, 11U);
  EXPECT_EQ(sampling.logit_bias, (std::map<TokenId, float>{{5, -100.0F}, {999, 2.5F}}));
}

TEST(ChatRequest, NullIsTheDefault) {
  const ChatRequest request =
      parse(R"("temperature":null,"top_p":null,"top_k":null,"stop":null,"seed":null,"n":null,
      "stream":null,"stream_options":null,"tools":null,"tool_choice":null,"response_format":null,"logprobs":null,
      "top_logprobs":null,"max_tokens":null,"logit_bias":null,"chat_template_kwargs":null,"model":null)");
  EXPECT_FLOAT_EQ(request.sampling.temperature, 0.9F);
  EXPECT_TRUE(request.stop.empty());
}

TEST(ChatRequest, EdgesOfSampling) {
  EXPECT_FLOAT_EQ(parse(R"("top_p":0)").sampling.top_p, 0.0F);
  EXPECT_FLOAT_EQ(parse(R"("top_p":1)").sampling.top_p, 1.0F);
  EXPECT_FLOAT_EQ(parse(R"("top_p":1e-9)").sampling.top_p, 1e-9F);
  EXPECT_EQ(parse(R"("top_k":0)").sampling.top_k, 0);
  EXPECT_EQ(parse(R"("top_k":-1)").sampling.top_k, -1);
  EXPECT_EQ(parse(R"("top_k":1000000000)").sampling.top_k, 1'000'000'000);
  EXPECT_EQ(parse(R"("top_k":5.0)").sampling.top_k, 5);
  EXPECT_FLOAT_EQ(parse(R"("min_p":1)").sampling.min_p, 1.0F);
  EXPECT_FLOAT_EQ(parse(R"("temperature":0)").sampling.temperature, 0.0F);
}

TEST(ChatRequest, OutOfRangeOrOfTheWrongTypeNamesTheField) {
  for (const auto& [field, values] : std::map<std::string, std::vector<std::string>>{
           {"temperature", {"-0.1", "2.1", "\"1\"", "true", "[]"}},
           {"top_p", {"1.5", "-0.1", "\"x\""}},
           {"top_k", {"-2", "1.5", "\"5\"", "1e300", "18446744073709551616"}},
           {"min_p", {"-0.1", "1.1"}},
           {"presence_penalty", {"2.5", "-3"}},
           {"frequency_penalty", {"2.5", "{}"}},
           {"repetition_penalty", {"0", "-1", "\"a\""}},
           {"repetition_context_size", {"0", "-1"}},
           {"seed", {"18446744073709551616", "9223372036854775808", "\"7\"", "1.5"}},
           {"max_tokens", {"0", "-1", "\"5\"", "1.5", "true"}},
           {"max_completion_tokens", {"0", "-1", "\"5\""}},
           {"stop", {"5", "\"\"", "[\"a\",5]", "[\"\"]", "{}"}},
           {"logprobs", {"1", "\"true\""}},
           {"stream", {"1", "\"true\""}},
           {"stream_options.include_usage", {}},
           {"logit_bias", {"[]", "{\"x\":1}", "{\"-1\":1}", "{\"1000\":1}", "{\"5\":101}", "{\"5\":\"a\"}"}},
           {"chat_template_kwargs", {"[]", "\"x\""}},
           {"n", {"0", "2", "-1", "\"1\""}},
           {"model", {"5", "[]"}},
       }) {
    for (const std::string& value : values) expect_refused("\"" + field + "\":" + value, field);
  }
  expect_refused(R"("stream_options":5)", "stream_options");
  expect_refused(R"("stream_options":{"include_usage":1})", "stream_options.include_usage");
  expect_refused(R"("logprobs":true,"top_logprobs":21)", "top_logprobs");
  expect_refused(R"("top_logprobs":2)", "top_logprobs");
}

TEST(ChatRequest, SeedsAreTheRequestsOrFresh) {
  EXPECT_EQ(parse(R"("seed":0)").sampling.seed, 0U);
  EXPECT_EQ(parse(R"("seed":9223372036854775807)").sampling.seed, 9223372036854775807U);
  EXPECT_EQ(parse(R"("seed":-1)").sampling.seed, UINT64_MAX);
  EXPECT_NE(parse("").sampling.seed, parse("").sampling.seed);
  EXPECT_NE(parse(R"("seed":null)").sampling.seed, parse(R"("seed":null)").sampling.seed);
}

TEST(ChatRequest, TheSmallerTokenLimitCounts) {
  EXPECT_EQ(parse(R"("max_tokens":9)").max_tokens, 9);
  EXPECT_EQ(parse(R"("max_completion_tokens":5)").max_tokens, 5);
  EXPECT_EQ(parse(R"("max_tokens":9,"max_completion_tokens":5)").max_tokens, 5);
  EXPECT_EQ(parse(R"("max_tokens":3,"max_completion_tokens":5)").max_tokens, 3);
  EXPECT_EQ(parse(R"("max_tokens":5.0)").max_tokens, 5);
  EXPECT_EQ(parse(R"("max_tokens":1000000000000)").max_tokens, 1'000'000'000'000);
}

TEST(ChatRequest, StopIsAStringOrSome) {
  EXPECT_EQ(parse(R"("stop":"a")").stop, std::vector<std::string>{"a"});
  EXPECT_EQ(parse(R"("stop":["a","bc"])").stop, (std::vector<std::string>{"a", "bc"}));
  EXPECT_TRUE(parse(R"("stop":[])").stop.empty());
  std::string many = R"("stop":["a")";
  for (int i = 0; i < 16; ++i) many += ",\"b\"";
  expect_refused(many + "]", "stop");
}

TEST(ChatRequest, TemplateSwitchesAreExactBooleans) {
  const auto options = [](const std::string& kwargs) {
    return parse("\"chat_template_kwargs\":" + kwargs).template_options;
  };
  EXPECT_FALSE(options(R"({"enable_thinking":false})").enable_thinking);
  for (const auto* other : {"null", "0", "\"false\"", "true"}) {
    EXPECT_TRUE(options(std::string(R"({"enable_thinking":)") + other + "}").enable_thinking) << other;
  }
  EXPECT_TRUE(options(R"({"preserve_thinking":true})").preserve_thinking);
  for (const auto* other : {"null", "1", "\"true\"", "false"}) {
    EXPECT_FALSE(options(std::string(R"({"preserve_thinking":)") + other + "}").preserve_thinking) << other;
  }
  EXPECT_TRUE(options(R"({"foo":{"bar":1}})").enable_thinking) << "unknown ones are ignored";
}

TEST(ChatRequest, UnknownFieldsAreIgnored) {
  parse(
      R"("store":true,"metadata":{"a":"b"},"service_tier":"x","parallel_tool_calls":true,"reasoning_effort":"low",
           "foo":[1,{"bar":null}],"user":5)");
  EXPECT_EQ(messages(R"([{"role":"user","content":"hi","name":"n","id":"1","refusal":null,"annotations":[],
                          "audio":null}])"),
            Json::parse(R"([{"role":"user","content":"hi"}])"));
}

TEST(ChatRequest, ResponseFormats) {
  EXPECT_EQ(parse(R"("response_format":{"type":"text"})").schema, nullptr);
  EXPECT_EQ(*parse(R"("response_format":{"type":"json_object"})").schema,
            Json::parse(R"({"type":"object"})"));
  const ChatRequest nested = parse(
      R"("response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"null"}}})");
  EXPECT_EQ(*nested.schema, Json::parse(R"({"type":"null"})"));
  EXPECT_EQ(nested.schema_field, "response_format.json_schema.schema");
  EXPECT_NE(parse(R"("response_format":{"type":"json_schema","name":"n","schema":{}})").schema, nullptr);
  expect_refused(R"("response_format":"text")", "response_format");
  expect_refused(R"("response_format":{"type":"xml"})", "response_format.type");
  expect_refused(R"("response_format":{"type":"json_schema"})", "response_format.json_schema.schema");
}

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object",
       "properties":{"z":{"type":"string"},"a":{"type":"integer"}}},"strict":false},"cache_control":{}},
       {"type":"function","name":"g"}])";

TEST(ChatTools, AreWhatTheTemplateTakes) {
  const ChatTools tools = parse(kTools).tools;
  EXPECT_EQ(tools.definitions->dump(),
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object",)"
            R"("properties":{"z":{"type":"string"},"a":{"type":"integer"}}}}},)"
            R"({"type":"function","function":{"name":"g"}}])");
  ASSERT_NE(tools.set->find("f"), nullptr);
  EXPECT_TRUE(tools.set->find("f")->at("a").integer);
  EXPECT_NE(tools.set->find("g"), nullptr);
  EXPECT_TRUE(tools.parallel);
  EXPECT_EQ(tools.choice.kind, ToolChoice::Kind::kAuto);
  EXPECT_NE(parse(R"("functions":[{"name":"f"}],"function_call":"auto")").tools.set->find("f"), nullptr);
  EXPECT_FALSE(parse(kTools + R"(,"parallel_tool_calls":false)").tools.parallel);
}

TEST(ChatTools, NoneMeansThereAreNone) {
  EXPECT_EQ(parse(R"("tools":[],"functions":[],"tool_choice":"auto")").tools.set, nullptr);
  EXPECT_EQ(parse(R"("tool_choice":"none")").tools.set, nullptr);
  EXPECT_EQ(parse(kTools + R"(,"tool_choice":"none")").tools.set, nullptr);
  EXPECT_EQ(parse(kTools + R"(,"function_call":"none")").tools.definitions, nullptr);
}

TEST(ChatTools, WhatIsWrongIsNamed) {
  expect_refused(R"("tools":5)", "tools");
  expect_refused(R"("tools":[5])", "tools[0]");
  expect_refused(R"("tools":[{}])", "tools[0].function");
  expect_refused(R"("tools":[{"type":"web_search"}])", "tools[0].type");
  expect_refused(R"("tools":[{"function":{"name":""}}])", "tools[0].function.name");
  expect_refused(R"("tools":[{"function":{"name":"a>b"}}])", "tools[0].function.name");
  expect_refused(R"("tools":[{"function":{"name":5}}])", "tools[0].function.name");
  expect_refused(R"("tools":[{"function":{"name":"f","parameters":5}}])", "tools[0].function.parameters");
  expect_refused(R"("functions":[{"nome":"f"}])", "functions[0].function.name");
  expect_refused(R"("tool_choice":"required")", "tool_choice");
  expect_refused(kTools + R"(,"tool_choice":"always")", "tool_choice");
  expect_refused(kTools + R"(,"tool_choice":5)", "tool_choice");
  expect_refused(kTools + R"(,"tool_choice":{"type":"function"})", "tool_choice.name");
  expect_refused(kTools + R"(,"tool_choice":{"type":"allowed_tools"})", "tool_choice.type");
  expect_refused(kTools + R"(,"tool_choice":{"type":"function","function":{"name":"h"}})", "tool_choice");
}

TEST(ChatThinking, AllSpellingsCount) {
  const auto on = [](const std::string& fields) { return parse(fields).template_options.enable_thinking; };
  const auto budget = [](const std::string& fields) { return parse(fields).thinking_budget; };
  EXPECT_TRUE(on(""));
  EXPECT_FALSE(on(R"("enable_thinking":false)"));
  EXPECT_FALSE(on(R"("reasoning_effort":"none")"));
  EXPECT_TRUE(on(R"("reasoning_effort":"low")"));
  EXPECT_FALSE(on(R"("reasoning":{"enabled":false})"));
  EXPECT_FALSE(on(R"("reasoning":{"effort":"none"})"));
  EXPECT_FALSE(on(R"("thinking":{"type":"disabled"})"));
  EXPECT_FALSE(on(R"("thinking":false)"));
  EXPECT_FALSE(on(R"("reasoning_effort":"high","chat_template_kwargs":{"enable_thinking":false})"));
  EXPECT_TRUE(on(R"("reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})"));
  EXPECT_TRUE(parse(R"("preserve_thinking":true)").template_options.preserve_thinking);
  EXPECT_EQ(budget(""), std::nullopt);
  EXPECT_EQ(budget(R"("thinking_budget":-1)"), std::nullopt);
  EXPECT_EQ(budget(R"("reasoning_effort":"high")"), std::nullopt);
  EXPECT_EQ(budget(R"("reasoning_effort":"low")"), 2048);
  EXPECT_EQ(budget(R"("reasoning_effort":"low","thinking_budget":0)"), 0);
  EXPECT_EQ(budget(R"("reasoning":{"max_tokens":9})"), 9);
  for (const std::string name :
       {"thinking_budget", "thinking_token_budget", "thinking_budget_tokens", "max_thinking_tokens"}) {
    EXPECT_EQ(budget("\"" + name + "\":7"), 7) << name;
    expect_refused("\"" + name + "\":-2", name);
  }
  EXPECT_EQ(budget(R"("thinking":{"type":"enabled","budget_tokens":5})"), 5);
  expect_refused(R"("reasoning_effort":"much")", "reasoning_effort");
  expect_refused(R"("thinking":{"type":"often"})", "thinking.type");
  expect_refused(R"("thinking":5)", "thinking");
  expect_refused(R"("enable_thinking":"no")", "enable_thinking");
}

TEST(ChatRequest, BodiesThatAreNoRequest) {
  for (const auto* body :
       {"", "{", "\"\xFF\"", "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud83d\"}]}"}) {
    EXPECT_EQ(refuse_whole(body).code, "invalid_json") << body;
  }
  EXPECT_EQ(refuse_whole("[]").status, 400);
  EXPECT_EQ(refuse_whole("5").status, 400);
  EXPECT_EQ(refuse_whole("null").status, 400);
  EXPECT_EQ(refuse_whole("{}").param, "messages");
}

TEST(ChatMessages, PartsJoinWithNothingBetween) {
  const std::string parts = R"([{"type":"text","text":"A "},{"type":"text","text":" B"}])";
  for (const auto* role : {"user", "system", "assistant", "tool"}) {
    EXPECT_EQ(messages(std::string(R"([{"role":")") + role + R"(","content":)" + parts + "}]")[0]["content"],
              "A  B")
        << role;
  }
  EXPECT_EQ(messages(R"([{"role":"user","content":[]}])")[0]["content"], "");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":null}])")[0]["content"], "");
  EXPECT_EQ(messages(R"([{"role":"assistant"}])")[0]["content"], "");
}

TEST(ChatMessages, OtherContentNamesThePart) {
  EXPECT_EQ(message_error(R"([{"role":"user","content":5}])"), "messages[0].content");
  EXPECT_EQ(message_error(R"([{"role":"user","content":{"text":"x"}}])"), "messages[0].content");
  EXPECT_EQ(
      message_error(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio"}]}])"),
      "messages[0].content[1].type");
  EXPECT_EQ(message_error(R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])"),
            "messages[0].content[0].type");
  EXPECT_EQ(message_error(R"([{"role":"user","content":[{"type":"text"}]}])"), "messages[0].content[0].text");
  EXPECT_EQ(message_error(R"([{"role":"user","content":[{"type":"text","text":5}]}])"),
            "messages[0].content[0].text");
  EXPECT_EQ(message_error(R"([{"role":"user","content":["a"]}])"), "messages[0].content[0]");
  EXPECT_EQ(message_error(R"([{"content":"a"}])"), "messages[0].role");
  EXPECT_EQ(message_error(R"(["a"])"), "messages[0]");
  EXPECT_EQ(message_error("[]"), "messages");
  EXPECT_EQ(message_error("{}"), "messages");
}

TEST(ChatMessages, ReasoningHasTwoNames) {
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"a","reasoning":"R"}])")[0]["reasoning_content"], "R");
  EXPECT_EQ(messages(R"([{"role":"assistant","content":"a","reasoning_content":"R","reasoning":"S"}])")
                [0]["reasoning_content"],
            "R");
  EXPECT_FALSE(messages(R"([{"role":"assistant","content":"a"}])")[0].contains("reasoning_content"));
  EXPECT_FALSE(
      messages(R"([{"role":"user","content":"a","reasoning":"R"}])")[0].contains("reasoning_content"));
  EXPECT_EQ(message_error(R"([{"role":"assistant","content":"a","reasoning":5}])"), "messages[0].reasoning");
}

TEST(ChatMessages, DeveloperIsSystem) {
  EXPECT_EQ(messages(R"([{"role":"developer","content":"a"}])")[0]["role"], "system");
}

std::string history_with_arguments(const std::string& arguments) {
  return R"([{"role":"user","content":"q"},{"role":"assistant","content":null,
              "tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":)" +
         arguments + "}}]}]";
}

TEST(ChatMessages, ToolCallArgumentsBecomeObjects) {
  const auto arguments = [](const std::string& text) {
    return messages(history_with_arguments(text))[1]["tool_calls"][0]["function"]["arguments"];
  };
  EXPECT_EQ(arguments(R"("{\"z\": 1, \"a\": [true]}")").dump(), R"({"z":1,"a":[true]})");
  EXPECT_EQ(arguments(R"({"z":1})"), Json::parse(R"({"z":1})"));
  EXPECT_EQ(arguments(R"("")"), Json::object());
  EXPECT_EQ(arguments("null"), Json::object());
}

// What an earlier answer broke off must not cost the conversation.
TEST(ChatMessages, BrokenArgumentsSurvive) {
  for (const std::string text : {"{", "{\"path\": \"a", "{\"a\":1}}", "{\"a\":1}{\"b\":2}", "[1]"}) {
    const Json arguments =
        messages(history_with_arguments(Json(text).dump()))[1]["tool_calls"][0]["function"]["arguments"];
    EXPECT_EQ(arguments, Json({{"arguments", text}})) << text;
  }
  EXPECT_EQ(message_error(history_with_arguments("5")), "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(message_error(R"([{"role":"assistant","tool_calls":[{"id":"1"}]}])"),
            "messages[0].tool_calls[0].function");
  EXPECT_EQ(message_error(R"([{"role":"assistant","tool_calls":{}}])"), "messages[0].tool_calls");
}

}  // namespace
}  // namespace lily
