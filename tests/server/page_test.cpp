#include "server/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "tests/server/http_client.h"

namespace lily {
namespace {

using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = HttpServer::start({.address = {.host = "127.0.0.1", .port = 0}}, page_routes());
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(started).value();
  }

  // The whole answer to one request.
  std::string ask(const std::string& method, const std::string& path, const std::string& headers = {}) {
    HttpClient client(server_->port());
    client.send(method + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n" + headers + "\r\n");
    return client.read_to_end();
  }

  std::unique_ptr<HttpServer> server_;
};

std::string tag_of(const std::string& answer) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(answer, match, std::regex("ETag: (\"[0-9a-f]{16}\")\r\n")));
  return match[1];
}

std::string length_of(const std::string& answer) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(answer, match, std::regex("Content-Length: ([0-9]+)\r\n")));
  return match[1];
}

TEST_F(PageTest, ServesThePageLockedUp) {
  const std::string answer = ask("GET", "/");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/html; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self';"));
  EXPECT_THAT(answer, HasSubstr("require-trusted-types-for 'script'"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("Cache-Control: no-cache\r\n"));
  EXPECT_THAT(answer, HasSubstr("<!doctype html>"));
}

TEST_F(PageTest, AnswersWhatTheClientHasAlready) {
  const std::string whole = ask("GET", "/page/page.css");
  const std::string tag = tag_of(whole);
  for (const std::string& tags : {tag, "\"other\", W/" + tag, std::string("*")}) {
    const std::string answer = ask("GET", "/page/page.css", "If-None-Match: " + tags + "\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 304 Not Modified\r\n"));
    EXPECT_THAT(answer, EndsWith("\r\n\r\n")) << "no body";
    EXPECT_EQ(tag_of(answer), tag);
    EXPECT_EQ(length_of(answer), length_of(whole));
  }
  EXPECT_THAT(ask("GET", "/page/page.css", "If-None-Match: \"0123456789abcdef\"\r\n"),
              StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_NE(tag_of(ask("GET", "/page/app.js")), tag);
}

TEST_F(PageTest, NothingFollowsAnAnswerWithoutBody) {
  const std::string tag = tag_of(ask("GET", "/"));
  HttpClient client(server_->port());
  client.send("GET / HTTP/1.1\r\nHost: test\r\nIf-None-Match: " + tag +
              "\r\n\r\nHEAD / HTTP/1.1\r\nHost: test\r\n\r\n");
  client.half_close();
  EXPECT_THAT(client.read_to_end(),
              ContainsRegex("^HTTP/1.1 304 [^<]*\r\n\r\nHTTP/1.1 200 OK\r\n[^<]*\r\n\r\n$"));
}

// Follows the addresses in the page and the imports of its modules: each has to be there, with its type.
TEST_F(PageTest, EveryFileItNamesIsServed) {
  const std::string index = ask("GET", "/");
  std::set<std::string> seen;
  std::vector<std::string> waiting;
  const auto collect = [&](const std::string& text, const std::regex& pattern, const std::string& folder) {
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
      if (seen.insert(folder + (*match)[1].str()).second) waiting.push_back(folder + (*match)[1].str());
    }
  };
  collect(index, std::regex("(?:src|href)=\"(page/[^\"]+)\""), "/");
  while (!waiting.empty()) {
    const std::string path = waiting.back();
    waiting.pop_back();
    const std::string answer = ask("GET", path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n")) << path;
    if (!path.ends_with(".js")) continue;
    EXPECT_THAT(answer, HasSubstr("Content-Type: text/javascript; charset=utf-8\r\n")) << path;
    if (path.find("/lib/") == std::string::npos) {
      collect(answer, std::regex("(?:from |import |import\\()\"\\./([^\"]+)\""), "/page/");
    }
  }
  EXPECT_THAT(seen, ::testing::IsSupersetOf({"/page/page.css", "/page/app.js", "/page/lib/marked.js",
                                             "/page/lib/purify.js", "/page/lib/highlight.js"}));
}

TEST_F(PageTest, NamesNoOtherMachine) {
  for (const char* path :
       {"/", "/page/page.css", "/page/app.js", "/page/markdown.js", "/page/completion.js"}) {
    const std::string answer = ask("GET", path);
    EXPECT_EQ(answer.find("//cdn"), std::string::npos) << path;
    EXPECT_EQ(answer.find("https://"), std::string::npos) << path;
  }
}

TEST_F(PageTest, OtherPathsAreNotThere) {
  for (const char* path : {"/page", "/page/index.html", "/page/nothing.js", "/page/../page.cpp"}) {
    EXPECT_THAT(ask("GET", path), StartsWith("HTTP/1.1 404")) << path;
  }
}

}  // namespace
}  // namespace lily
