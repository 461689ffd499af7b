#include "cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cli/flag_value.h"
#include "cli/help.h"

namespace lily {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Options parsed(const std::vector<std::string>& arguments) {
  auto invocation = parse_command_line(arguments);
  EXPECT_TRUE(invocation.ok()) << invocation.error().message;
  return invocation.ok() ? invocation->options : Options{};
}

std::string error(const std::vector<std::string>& arguments) {
  const auto invocation = parse_command_line(arguments);
  EXPECT_FALSE(invocation.ok());
  if (invocation.ok()) return "";
  EXPECT_EQ(invocation.error().code, ErrorCode::kInvalidArgument);
  return invocation.error().message;
}

TEST(CommandLine, ReadsEveryKindOfValue) {
  const Options o = parsed({"run", "/models/m", "-p", "hello", "-n", "12", "--temperature", "0.5",
                            "--top-k=3", "--seed", "18446744073709551615", "--think", "--ids", "1,2,3"});
  EXPECT_EQ(o.model, "/models/m");
  EXPECT_EQ(o.prompt, "hello");
  EXPECT_EQ(o.max_tokens, 12);
  EXPECT_EQ(o.temperature, 0.5);
  EXPECT_EQ(o.top_k, 3);
  EXPECT_EQ(o.seed, 18446744073709551615ULL);
  EXPECT_TRUE(o.think);
  EXPECT_FALSE(o.raw);
  EXPECT_THAT(o.ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(parsed({"bench", "--contexts", "16,32"}).contexts, ElementsAre(16, 32));
}

TEST(CommandLine, ModelIsTinyUnlessNamed) {
  EXPECT_EQ(parsed({"chat"}).model, "tiny");
  EXPECT_EQ(parsed({"chat", "run"}).model, "run");  // a directory may be called like a command
}

TEST(CommandLine, TextIsTakenAsItIs) {
  EXPECT_EQ(parsed({"run", "-p", "-"}).prompt, "-");
  EXPECT_EQ(parsed({"run", "-p", "--help"}).prompt, "--help");
  EXPECT_EQ(parsed({"run", "-p", "[a, b]"}).prompt, "[a, b]");
  EXPECT_EQ(parsed({"run", "-p", ""}).prompt, "");
  EXPECT_EQ(parsed({"run", "--prompt=a=b"}).prompt, "a=b");
  EXPECT_EQ(parsed({"run", "-p", "ä 漢 😀\n"}).prompt, "ä 漢 😀\n");
  EXPECT_EQ(parsed({"run", "-p", "\"quoted\""}).prompt, "\"quoted\"");
}

TEST(CommandLine, TheLastOfEqualFlagsCounts) {
  EXPECT_EQ(parsed({"run", "-n", "1", "-n", "2"}).max_tokens, 2);
}

TEST(CommandLine, ErrorsSayWhatWasExpectedAndFound) {
  EXPECT_THAT(error({}), HasSubstr("expected a command, found none"));
  EXPECT_EQ(error({"rnu"}), "unknown command 'rnu' (did you mean run?); 'lily --help' lists them");
  EXPECT_EQ(error({"xyzzy"}), "unknown command 'xyzzy'; 'lily --help' lists them");
  EXPECT_EQ(error({"run", "--thread", "2"}),
            "run: unknown flag --thread (did you mean --threads?); 'lily run --help' lists them");
  EXPECT_EQ(error({"run", "a", "b"}), "run: one argument too many: 'b'");
  EXPECT_EQ(error({"run", "-p"}), "run: --prompt: expected a value, found none");
  EXPECT_EQ(error({"run", "--threads", "two"}),
            "run: --threads: expected a whole number from 0 to 4096, found 'two'");
  EXPECT_EQ(error({"run", "--threads", "1.5"}),
            "run: --threads: expected a whole number from 0 to 4096, found '1.5'");
  EXPECT_EQ(error({"run", "--top-p", "1.01"}), "run: --top-p: expected a number from 0 to 1, found '1.01'");
  EXPECT_EQ(error({"run", "--top-p", "nan"}), "run: --top-p: expected a number from 0 to 1, found 'nan'");
  EXPECT_EQ(error({"run", "--seed", "-1"}), "run: --seed: expected a whole number of at least 0, found '-1'");
  EXPECT_EQ(error({"run", "-n", "99999999999999999999"}),
            "run: --max-tokens: expected a whole number of at least 0, found '99999999999999999999'");
  EXPECT_THAT(error({"run", "--backend", "gpu"}), HasSubstr("--backend: expected auto|cpu|"));
  EXPECT_THAT(error({"run", "--ids", ""}), HasSubstr("--ids: expected token ids like 1,2,3"));
  EXPECT_THAT(error({"bench", "--contexts", "1,,2"}),
              HasSubstr("--contexts: expected a whole number of at least 1"));
  EXPECT_THAT(error({"serve", "--port", "65536"}),
              HasSubstr("--port: expected a whole number from 0 to 65535"));
}

TEST(CommandLine, FlagsBelongToTheirCommands) {
  EXPECT_THAT(error({"tokenize", "--temperature", "1"}), HasSubstr("unknown flag --temperature"));
  EXPECT_THAT(error({"devices", "model"}), HasSubstr("one argument too many"));
}

TEST(CommandLine, EveryCommandTakesTheCommonFlagsAndHasHelp) {
  for (const Command& command : commands()) {
    const std::string name(command.name);
    if (name != "completion") {  // it prints a table and runs nothing
      const Options o = parsed({name, "--backend", "reference", "--exact", "--threads", "1", "--isa",
                                "generic", "--log-level", "error"});
      EXPECT_EQ(o.backend, "reference");
      EXPECT_TRUE(o.exact);
    }
    const auto help = parse_command_line({name, "--help"});
    ASSERT_TRUE(help.ok());
    EXPECT_EQ(help->command, nullptr);
    EXPECT_THAT(help->text, HasSubstr("Usage: lily " + name));
    for (const Flag& flag : flags()) {
      if ((flag.commands & command.bit) == 0 || !flag.names.starts_with('-')) continue;
      EXPECT_THAT(help->text, HasSubstr(std::string(long_name(flag)) + " "));
      EXPECT_THAT(help->text, HasSubstr(std::string(flag.help)));
    }
  }
}

TEST(CommandLine, TheTableHoldsNothingTwice) {
  std::set<std::string_view> names;
  for (const Command& command : commands()) {
    EXPECT_TRUE(names.insert(command.name).second) << command.name;
    std::set<std::string_view> flag_names;
    for (const Flag& flag : flags()) {
      if ((flag.commands & command.bit) == 0) continue;
      EXPECT_TRUE(flag_names.insert(flag.names).second) << command.name << " " << flag.names;
    }
  }
}

TEST(CommandLine, HelpAndVersionPrint) {
  EXPECT_THAT(parse_command_line({"--help"})->text, HasSubstr("lily COMMAND [MODEL]"));
  EXPECT_THAT(parse_command_line({"--version"})->text,
              testing::MatchesRegex("lily [0-9]+\\.[0-9]+\\.[0-9]+( \\([0-9a-z-]+\\))?\n"));
}

}  // namespace
}  // namespace lily
