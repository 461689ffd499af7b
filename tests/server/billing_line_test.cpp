#include "server/billing_line.h"

#include <gtest/gtest.h>

namespace lily {
namespace {

constexpr std::string_view kLine =
    "x-anthropic-billing-header: cc_version=2.1.100.7b4; cc_entrypoint=cli; cch=eb6c6;";

std::string strip(std::string_view rest) {
  return std::string(without_billing_line(std::string(kLine) + std::string(rest)));
}

TEST(BillingLine, IsTakenAwayWithItsLineEnd) {
  EXPECT_EQ(strip("\nYou are an agent."), "You are an agent.");
  EXPECT_EQ(strip("\n\nYou"), "\nYou");
  EXPECT_EQ(strip(""), "");
  EXPECT_EQ(strip(" \nYou"), "You");
}

TEST(BillingLine, LeavesWhatPartsJoinedWithoutALineEndAdd) {
  EXPECT_EQ(strip("You are an agent; a=b; is text."), "You are an agent; a=b; is text.");
  EXPECT_EQ(without_billing_line("x-anthropic-billing-header: cch=1;You"), "You");
}

TEST(BillingLine, LeavesEverythingElse) {
  for (const std::string_view text :
       {"", "You are an agent.", " x-anthropic-billing-header: cch=1;", "x-anthropic-billing-header",
        "x-anthropic-billing-header: is what this text is about", "x-anthropic-billing-header: cch=1\nYou",
        "x-anthropic-billing-header:"}) {
    EXPECT_EQ(without_billing_line(text), text);
  }
}

}  // namespace
}  // namespace lily
