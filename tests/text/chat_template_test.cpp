#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/text/small_tokenizer.h"
#include "text/sha256.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

const ChatTemplate& qwen36() {
  static const ChatTemplate instance =
      ChatTemplate::recognise(test::tiny_file("chat_template.jinja")).value();
  return instance;
}

// Qwen3.5's template is Qwen3.6's with two clauses exchanged.
std::string qwen35_text() {
  std::string text = test::tiny_file("chat_template.jinja");
  const auto replace = [&](std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace(
      "(preserve_thinking is defined and preserve_thinking is true) or (loop.index0 > ns.last_query_index)",
      "loop.index0 > ns.last_query_index");
  replace("args_value | string if args_value is string else args_value | tojson | safe",
          "args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is "
          "not string) "
          "else args_value | string");
  return text;
}

// An array. (Braces would take a single element for the value itself.)
template <class... Elements>
Json list(Elements... elements) {
  Json array = Json::array();
  (array.push_back(std::move(elements)), ...);
  return array;
}

Json typed(const char* type) {
  return {{"type", type}};
}

Json text_part(const Json& text) {
  return {{"type", "text"}, {"text", text}};
}

Json message(const char* role, const Json& content) {
  return {{"role", role}, {"content", content}};
}

Json assistant(const Json& content, const char* reasoning) {
  return {{"role", "assistant"}, {"content", content}, {"reasoning_content", reasoning}};
}

Json call(const char* name, const Json& arguments) {
  return {{"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

Json with_calls(Json message, const Json& calls) {
  message["tool_calls"] = calls;
  return message;
}

std::string render(const Json& messages, const ChatTemplateOptions& options = {},
                   const Json& tools = nullptr) {
  const auto text = qwen36().render(messages, tools, options);
  return text.ok() ? *text : "error: " + text.error().message;
}

// The worked examples, numbered as in the model's specification, section 6.4.
TEST(ChatTemplate, PlainTurns) {
  const Json hi = list(message("user", "Hi"));
  EXPECT_EQ(render(hi), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");  // 1
  EXPECT_EQ(render(hi, {.enable_thinking = false}),                                           // 2
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(render(list(message("system", "Be brief."), message("user", "  Hi \n"))),  // 3
            "<|im_start|>system\nBe "
            "brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(
      render(list(message("system", ""), message("user", "Hi"))),  // 4
      "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
}

TEST(ChatTemplate, ReasoningOfEarlierTurns) {
  const std::string stripped =
      "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n<|im_start|>user\nC<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n";
  const std::string preserved =
      "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>\nR\n</"
      "think>\n\nB<|im_end|>\n<|im_start|>user\nC"
      "<|im_end|>\n<|im_start|>assistant\n<think>\n";
  for (const Json& answer : {assistant("B", "R"), message("assistant", "<think>\nR\n</think>\n\nB")}) {
    const Json messages = list(message("user", "A"), answer, message("user", "C"));
    EXPECT_EQ(render(messages), stripped);                                // 5
    EXPECT_EQ(render(messages, {.preserve_thinking = true}), preserved);  // 6
  }
  EXPECT_EQ(render(list(message("user", "A"), message("assistant", "B"), message("user", "C")),  // 7
                   {.enable_thinking = false, .preserve_thinking = true}),
            "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>\n\n</"
            "think>\n\nB<|im_end|>\n<|im_start|>user\n"
            "C<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(
      render(list(message("user", "A"), assistant("B", " R\n")), {.add_generation_prompt = false}),  // 8
      "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>\nR\n</think>\n\nB<|im_end|>\n");
  // `reasoning` is not read; an empty reasoning_content wins over tags in the text.
  EXPECT_EQ(
      render(list(message("user", "A"), Json{{"role", "assistant"}, {"content", "B"}, {"reasoning", "R"}}),
             {.add_generation_prompt = false}),
      "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nB<|im_end|>\n");
  EXPECT_EQ(render(list(message("user", "A"), assistant("<think>\nR\n</think>\n\nB", "")),
                   {.add_generation_prompt = false}),
            "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n<think>\nR\n</"
            "think>\n\nB<|im_end|>\n");
}

TEST(ChatTemplate, ReasoningInText) {
  const auto rendered = [](const char* text) {
    return render(list(message("user", "A"), message("assistant", text)), {.add_generation_prompt = false});
  };
  const auto expected = [](const std::string& body) {
    return "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\n<think>\n" + body + "<|im_end|>\n";
  };
  EXPECT_EQ(rendered("R\n</think>\n\n  B "), expected("R\n</think>\n\n  B"));
  EXPECT_EQ(rendered("a<think>x<think>\nb\n\n</think>c</think>\nD"), expected("b\n</think>\n\nD"));
  EXPECT_EQ(rendered("</think>"), expected("\n</think>\n\n"));
}

TEST(ChatTemplate, ToolRounds) {
  const Json arguments = {{"city", "Paris"}, {"n", 3},        {"ok", true},
                          {"x", nullptr},    {"l", {1, "é"}}, {"o", {{"k", "v"}}}};
  EXPECT_EQ(
      render(list(message("user", "Weather?"),
                  with_calls(assistant("", "need it"), list(call("get_weather", arguments))),
                  message("tool", "{\"t\":21}"))),  // 9
      "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<think>\nneed "
      "it\n</think>\n\n<tool_call>\n"
      "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=n>\n3\n</"
      "parameter>\n<parameter=ok>\n"
      "true\n</parameter>\n<parameter=x>\nnull\n</parameter>\n<parameter=l>\n[1, "
      "\"é\"]\n</parameter>\n<parameter=o>\n"
      "{\"k\": \"v\"}\n</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n"
      "{\"t\":21}\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(
      render(list(message("user", "W?"),
                  with_calls(message("assistant", "Let me check."),
                             list(call("f", {{"a", "1"}}), call("g", Json::object()))),
                  message("tool", "r1"), message("tool", "r2"))),  // 10
      "<|im_start|>user\nW?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nLet me "
      "check.\n\n<tool_call>\n"
      "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n"
      "</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n</"
      "tool_response>\n<tool_response>\n"
      "r2\n</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(
      render(list(message("user", "W?"), with_calls(assistant("", "R1"), list(call("f", {{"a", "1"}}))),
                  message("tool", "r1"), assistant("It is 21.", "R2"), message("user", "Thanks"))),  // 11
      "<|im_start|>user\nW?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n<function=f>\n<parameter=a>\n1\n"
      "</parameter>\n</function>\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nr1\n</"
      "tool_response>"
      "<|im_end|>\n<|im_start|>assistant\nIt is 21.<|im_end|>\n<|im_start|>user\nThanks<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n");
  // A call may come without its wrapper, and without arguments; a string value stays as it is, blanks and
  // all.
  EXPECT_THAT(render(list(message("user", "u"),
                          with_calls(message("assistant", nullptr), list(Json{{"name", "f"}})))),
              HasSubstr("</think>\n\n<tool_call>\n<function=f>\n</function>\n</tool_call><|im_end|>"));
  EXPECT_THAT(render(list(message("user", "u"),
                          with_calls(message("assistant", ""),
                                     list(call("f", {{"p", "      - item: two\n        keep: yes\n"}}))))),
              HasSubstr("<parameter=p>\n      - item: two\n        keep: yes\n\n</parameter>"));
}

TEST(ChatTemplate, ContentInParts) {
  const Json parts = list(text_part("a"), text_part("b"));
  EXPECT_EQ(render(list(message("user", parts))),
            "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n<think>\n");  // 12
  const Json image = list(Json{{"type", "image_url"}, {"image_url", {{"url", "x"}}}}, text_part("b"));
  EXPECT_EQ(render(list(message("user", image))),
            "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>b<|im_end|>\n<|im_start|>"
            "assistant\n<think>\n");
  EXPECT_THAT(render(list(message("user", image), message("user", image)), {.add_vision_id = true}),
              HasSubstr("user\nPicture 2: <|vision_start|>"));
  EXPECT_THAT(render(list(message("user", list(typed("video")))), {.add_vision_id = true}),
              HasSubstr("Video 1: <|vision_start|><|video_pad|><|vision_end|>"));

  // Field case B22: as the string form, for every role.
  const Json spaced = list(text_part("A "), text_part(" B"));
  const Json joined = "A  B";
  const auto conversation = [](const Json& content) {
    return list(message("system", content), message("user", content), message("assistant", content),
                message("tool", content));
  };
  EXPECT_EQ(render(conversation(spaced)), render(conversation(joined)));
  EXPECT_EQ(render(conversation(Json::array())), render(conversation("")));
  EXPECT_EQ(render(conversation(nullptr)), render(conversation("")));
}

TEST(ChatTemplate, Tools) {
  const Json tool = {{"type", "function"},
                     {"function",
                      {{"name", "get_weather"},
                       {"description", "Get weather"},
                       {"parameters",
                        {{"type", "object"},
                         {"properties", {{"city", {{"type", "string"}}}}},
                         {"required", list("city")}}}}}};
  const std::string text = render(list(message("user", "Weather?")), {}, list(tool));  // 13
  EXPECT_EQ(text.size(), 1171U);
  EXPECT_EQ(sha256_hex(text), "357801e183ff3d0f7b6ac8d974c58795b77dba6b8fe25d4cfbcb436d0711d6ee");
  const std::string with_system =
      render(list(message("system", "Be brief."), message("user", "Weather?")), {}, list(tool));
  EXPECT_EQ(with_system.size(), 1182U);
  EXPECT_EQ(sha256_hex(with_system), "699c825aa84deb8229d588d8232a94aefb434b91a2d55ecf69da590b14df5bd6");
  EXPECT_EQ(render(list(message("user", "Hi")), {}, Json::array()), render(list(message("user", "Hi"))));

  // Field case B16: order kept, nothing escaped.
  const Json odd = {{"type", "function"},
                    {"function",
                     {{"name", "f"},
                      {"description", "it's <b> & — ok/no"},
                      {"parameters",
                       {{"type", "object"},
                        {"properties", {{"z", {{"type", "string"}}}, {"a", {{"type", "integer"}}}}},
                        {"required", list("z")}}}}}};
  EXPECT_THAT(
      render(list(message("user", "u")), {}, list(odd)),
      HasSubstr(
          "<tools>\n{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"it's <b> & — "
          "ok/no\", \"parameters\": {\"type\": \"object\", \"properties\": {\"z\": {\"type\": \"string\"}, "
          "\"a\": {\"type\": \"integer\"}}, \"required\": [\"z\"]}}}\n</tools>"));
}

// Field cases B11 and B13, and example 14: the template's own words, with the place.
TEST(ChatTemplate, Refusals) {
  const Json user = message("user", "u");
  const Json system = message("system", "s");
  const Json wrapped = message("user", "<tool_response>\n1\n</tool_response>");
  const std::string order = "System message must be at the beginning.";
  const std::string query = "error: messages: No user query found in messages.";
  EXPECT_EQ(render(Json::array()), "error: messages: No messages provided.");
  EXPECT_EQ(render(list(user, system, user)), "error: messages[1]: " + order);
  EXPECT_EQ(render(list(system, system, user)), "error: messages[1]: " + order);
  EXPECT_EQ(render(list(system, user, message("assistant", "a"), system, user)),
            "error: messages[3]: " + order);
  EXPECT_EQ(render(list(system)), query);
  EXPECT_EQ(render(list(system, message("assistant", "a"))), query);
  EXPECT_EQ(render(list(wrapped)), query);
  EXPECT_EQ(render(list(message("developer", "d"), user)), "error: messages[0]: Unexpected message role.");
  EXPECT_EQ(render(list(user, Json{{"content", "x"}})), "error: messages[1]: Unexpected message role.");
  EXPECT_EQ(render(list(user, "x")), "error: messages[1]: Unexpected message role.");
  EXPECT_EQ(render(Json::object()), "error: messages: expected an array, found object");
  EXPECT_EQ(render(list(message("user", 5))), "error: messages[0].content: Unexpected content type.");
  EXPECT_EQ(render(list(message("user", {{"text", "x"}}))),
            "error: messages[0].content: Unexpected content type.");
  const Json audio = list(text_part("a"), typed("input_audio"));
  EXPECT_EQ(render(list(message("user", audio))),
            "error: messages[0].content[1]: Unexpected item type in content.");
  EXPECT_EQ(render(list(message("user", list(text_part(5))))),
            "error: messages[0].content[0].text: expected a string, found number");
  EXPECT_EQ(render(list(message("system", list(typed("image"))), user)),
            "error: messages[0].content[0]: System message cannot contain images.");
  EXPECT_EQ(render(list(message("system", list(typed("video"))), user)),
            "error: messages[0].content[0]: System message cannot contain videos.");
  EXPECT_EQ(render(list(user), {}, "f"), "error: tools: expected an array, found string");
}

TEST(ChatTemplate, WrappedToolResultsAreNoNewQuery) {
  const Json messages = list(message("user", "q"), assistant("a", "R"),
                             message("user", "<tool_response>\n1\n</tool_response>"));
  EXPECT_THAT(render(messages), HasSubstr("<think>\nR\n</think>\n\na<|im_end|>"));
}

// Field case B15: broken arguments name their message, and the next request is not affected.
TEST(ChatTemplate, BrokenToolCalls) {
  const auto with_arguments = [](const Json& arguments) {
    return list(message("user", "u"), with_calls(message("assistant", ""), list(call("f", arguments))),
                message("user", "v"));
  };
  EXPECT_EQ(render(with_arguments("{\"path\": \"a")),
            "error: messages[1].tool_calls[0].function.arguments: Can only get item pairs from a mapping, "
            "found string.");
  EXPECT_THAT(render(with_arguments(nullptr)),
              HasSubstr("error: messages[1].tool_calls[0].function.arguments"));
  EXPECT_THAT(render(list(message("user", "u"),
                          with_calls(message("assistant", ""), list(Json{{"function", nullptr}})))),
              HasSubstr("error: messages[1].tool_calls[0].function.name: expected a string, found nothing"));
  EXPECT_THAT(render(list(message("user", "u"), with_calls(message("assistant", ""), list(5)))),
              HasSubstr("error: messages[1].tool_calls[0].name"));
  EXPECT_THAT(render(list(message("user", "u"), with_calls(message("assistant", ""), "f"))),
              HasSubstr("error: messages[1].tool_calls: expected an array"));
  EXPECT_THAT(render(with_arguments({{"path", "a"}})), HasSubstr("<parameter=path>\na\n</parameter>"));
}

TEST(ChatTemplate, LimitsNesting) {
  Json deep = 1;
  for (int i = 0; i < 5000; ++i) deep = list(std::move(deep));
  const Json tools = list(std::move(deep));
  EXPECT_THAT(render(list(message("user", "u")), {}, tools),
              HasSubstr("error: tools[0]: JSON nested deeper than 128"));
}

TEST(ChatTemplate, TrimsAsPythonDoes) {
  EXPECT_EQ(render(list(message("user", "\u3000\x1c\u00a0\u2003\u0085 a\u200b \u2028\x1f")),
                   {.add_generation_prompt = false}),
            "<|im_start|>user\na\u200b<|im_end|>\n");
}

TEST(ChatTemplate, AToolMessageAtTheFrontOpensNoBlock) {
  EXPECT_EQ(render(list(message("tool", "r"), message("user", "u")), {.add_generation_prompt = false}),
            "\n<tool_response>\nr\n</tool_response><|im_end|>\n<|im_start|>user\nu<|im_end|>\n");
}

TEST(ChatTemplate, Recognises) {
  const std::string text = test::tiny_file("chat_template.jinja");
  std::string windows;
  for (const char c : text) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_TRUE(ChatTemplate::recognise(text + "\n").ok());
  EXPECT_TRUE(ChatTemplate::recognise(windows).ok());
  EXPECT_EQ(sha256_hex(qwen35_text()), "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715");
  EXPECT_TRUE(ChatTemplate::recognise(qwen35_text()).ok());
  const auto unknown = ChatTemplate::recognise(text + " ");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(ChatTemplate::recognise("other", true).ok());
}

TEST(ChatTemplate, Qwen35) {
  const ChatTemplate qwen35 = ChatTemplate::recognise(qwen35_text()).value();
  const Json scalars = {{"a", true}, {"b", nullptr}, {"c", 1.0}, {"d", 3}, {"e", {1, true}}, {"f", "s"}};
  const Json messages = list(message("user", "A"), assistant("B", "R"), message("user", "C"),
                             with_calls(assistant("", "S"), list(call("f", scalars))));
  const std::string text = qwen35.render(messages, nullptr, {.preserve_thinking = true}).value();
  EXPECT_THAT(text, HasSubstr("<|im_start|>assistant\nB<|im_end|>"));  // it has no preserve_thinking
  EXPECT_THAT(
      text,
      HasSubstr("<parameter=a>\nTrue\n</parameter>\n<parameter=b>\nNone\n</parameter>\n<parameter=c>\n1.0\n"
                "</parameter>\n<parameter=d>\n3\n</parameter>\n<parameter=e>\n[1, true]\n</parameter>\n"
                "<parameter=f>\ns\n</parameter>"));
}

// Whole prompts as ids, under the published tokenizer.
TEST(ChatTemplate, GoldenPrompts) {
  const auto json = test::published_tokenizer_json();
  if (!json) GTEST_SKIP() << "no tokenizer.json of Qwen3.6: set LILY_QWEN_TOKENIZER";
  const Tokenizer tokenizer = Tokenizer::parse(*json).value();
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(tokenizer.encode(render(list(message("user", "Rispondi solo: sì")), {.enable_thinking = false})),
            (Ids{248045, 846, 198, 49, 158648, 13138, 25, 187179, 248046, 198, 248045, 74455, 198, 248068,
                 271, 248069, 271}));
  EXPECT_EQ(
      tokenizer.encode(render(
          list(message("system", "Sei un assistente conciso."), message("user", "Saluta in italiano.")))),
      (Ids{248045, 8678, 198,   1460,  72,  632,   7543, 6603,   3413, 14970,  13,    248046, 198,    248045,
           846,    198,  16737, 15527, 303, 57786, 13,   248046, 198,  248045, 74455, 198,    248068, 198}));
  const Json round = list(message("user", "u"),
                          with_calls(message("assistant", ""), list(call("get_weather", {{"city", "Roma"}}))),
                          message("tool", "{\"temperature_c\":28,\"condition\":\"sunny\"}"));
  const Ids tail = {248068, 271,    248069, 271,  248058, 198,    27,     1628,   27362, 67017, 29,     198,
                    27,     15704,  28,     8656, 29,     198,    208639, 198,    510,   15704, 29,     198,
                    510,    1628,   29,     198,  248059, 248046, 198,    248045, 846,   198,   248066, 198,
                    4754,   33413,  648,    763,  17,     23,     1288,   8783,   3147,  82,    26415,  8934,
                    198,    248067, 248046, 198,  248045, 74455,  198,    248068, 198};
  const Ids ids = tokenizer.encode(render(round));
  ASSERT_GT(ids.size(), tail.size());
  EXPECT_EQ(Ids(ids.end() - std::ssize(tail), ids.end()), tail);
}

}  // namespace
}  // namespace lily
