#include "cli/chat_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/flag_table.h"
#include "cli/flag_value.h"

namespace lily {
namespace {

using Kind = ChatCommand::Kind;
using testing::HasSubstr;

TEST(ChatCommand, OnlyALeadingSlashMakesACommand) {
  EXPECT_TRUE(is_chat_command("/help"));
  EXPECT_TRUE(is_chat_command("  /help"));
  EXPECT_FALSE(is_chat_command("what does /help do?"));
  EXPECT_FALSE(is_chat_command(""));
}

TEST(ChatCommand, ReadsArguments) {
  EXPECT_EQ(parse_chat_command("/clear ")->kind, Kind::kClear);
  EXPECT_TRUE(parse_chat_command("/think on")->on);
  EXPECT_FALSE(parse_chat_command("/think off")->on);
  EXPECT_EQ(parse_chat_command("/system  Be brief. ")->argument, "Be brief.");
  EXPECT_EQ(parse_chat_command("/system")->argument, "");
  EXPECT_EQ(parse_chat_command("/save a b.json")->argument, "a b.json");
  EXPECT_EQ(parse_chat_command("/quit")->kind, Kind::kQuit);
}

TEST(ChatCommand, SaysWhatItExpected) {
  EXPECT_EQ(parse_chat_command("/foo").error().message, "unknown command /foo; /help lists them");
  EXPECT_EQ(parse_chat_command("/think").error().message, "/think: expected on or off, found ''");
  EXPECT_EQ(parse_chat_command("/clear all").error().message, "/clear takes no argument, found 'all'");
  EXPECT_THAT(parse_chat_command("/save").error().message, HasSubstr("expected a file name"));
}

TEST(ChatCommand, SetsGenerationByTheFlagsNames) {
  Options options;
  ASSERT_TRUE(set_generation("temperature 0.7", options).ok());
  EXPECT_EQ(options.temperature, 0.7);
  ASSERT_TRUE(set_generation("max-tokens 5", options).ok());
  EXPECT_EQ(options.max_tokens, 5);
  EXPECT_EQ(set_generation("temperature hot", options).error().message,
            "--temperature: expected a number from 0 to 100, found 'hot'");
  EXPECT_EQ(options.temperature, 0.7);
  EXPECT_FALSE(set_generation("backend cpu", options).ok());
  EXPECT_FALSE(set_generation("ignore-eos", options).ok());
}

TEST(ChatCommand, ShowsEverySettingItCanSet) {
  const std::string shown = format_generation({}, {});
  for (const Flag& flag : flags()) {
    if (flag.group != kGenerationGroup || flag.value.empty()) continue;
    const std::string name(long_name(flag).substr(2));
    EXPECT_THAT(shown, HasSubstr(name));
  }
}

TEST(ChatCommand, HelpListsTheCommands) {
  for (const char* name :
       {"/help", "/clear", "/retry", "/think on|off", "/system TEXT", "/set", "/save FILE", "/quit"}) {
    EXPECT_THAT(chat_help(), HasSubstr(name));
  }
}

}  // namespace
}  // namespace lily
