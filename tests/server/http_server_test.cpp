#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <list>

#include "server/client_watch.h"
#include "tests/server/http_client.h"

namespace lily {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// How a long answer ended, seen from its handler.
enum class Ending { kRunning, kComplete, kClientGone };

// A server with an echo, an answer in pieces, and one that waits on its client.
class HttpServerTest : public ::testing::Test {
 protected:
  void start(const HttpLimits& limits = {}) {
    auto started =
        HttpServer::start({.address = {.host = "127.0.0.1", .port = 0}, .limits = limits}, routes());
    ASSERT_TRUE(started.ok()) << started.error().message;
    server_ = std::move(started).value();
  }

  std::vector<HttpRoute> routes() {
    const auto whole = [](const HttpRequest& request, ResponseWriter& writer) {
      writer.send(
          {.content_type = "text/plain", .body = request.method + " " + request.path + ":" + request.body});
    };
    const auto pieces = [](const HttpRequest&, ResponseWriter& writer) {
      writer.begin({.content_type = "text/plain", .body = "one "});
      writer.write("two ");
      writer.write("three");
      writer.end();
    };
    const auto broken = [](const HttpRequest&, ResponseWriter&) { throw std::runtime_error("a bug"); };
    return {{"GET", "/health", whole},
            {"POST", "/echo", whole},
            {"GET", "/items/*", whole},
            {"GET", "/pieces", pieces},
            {"GET", "/broken", broken},
            {"GET", "/slow", slow(" ", false)},
            {"GET", "/slow-stream", slow(": ping\n\n", true)}};
  }

  // Works until release() or until the client is gone.
  HttpHandler slow(std::string_view ping, bool stream) {
    return [this, ping, stream](const HttpRequest&, ResponseWriter& writer) {
      const HttpResponse head{.content_type = "text/plain"};
      if (stream) writer.begin(head);
      ClientWatch watch(writer, head);
      while (!released_) {
        std::this_thread::sleep_for(milliseconds(5));
        if (!watch.alive(ping)) {
          ending_ = Ending::kClientGone;
          return;
        }
      }
      if (writer.begun()) {
        watch.write("done");
        writer.end();
      } else {
        writer.send({.content_type = "text/plain", .body = "done"});
      }
      ending_ = Ending::kComplete;
    };
  }

  void release() { released_ = true; }

  Ending wait_for_ending() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (ending_ == Ending::kRunning && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    return ending_;
  }

  std::string exchange(std::string_view bytes) {
    HttpClient client(server_->port());
    client.send(bytes);
    client.half_close();
    return client.read_to_end();
  }

  std::atomic<bool> released_ = false;
  std::atomic<Ending> ending_ = Ending::kRunning;
  std::unique_ptr<HttpServer> server_;  // last: its threads use the above
};

std::string get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: test\r\n\r\n";
}

TEST_F(HttpServerTest, AnswersRequestAfterRequest) {
  start();
  HttpClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo", "hello"));
    const std::string answer = client.read_until("POST /echo:hello");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, HasSubstr("Content-Length: 16\r\n"));
    EXPECT_THAT(answer, HasSubstr("X-Request-Id: req-"));
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  const std::string answers = exchange(post("/echo", "1") + post("/echo", "2") + get("/health"));
  EXPECT_LT(answers.find("/echo:1"), answers.find("/echo:2"));
  EXPECT_LT(answers.find("/echo:2"), answers.find("GET /health"));
  EXPECT_NE(answers.find("GET /health"), std::string::npos);
}

TEST_F(HttpServerTest, StreamsInChunks) {
  start();
  HttpClient client(server_->port());
  client.send(get("/pieces") + get("/health"));
  const std::string answers = client.read_until("GET /health:");
  EXPECT_THAT(answers, HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_THAT(answers, HasSubstr("\r\n\r\n4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\nHTTP/1.1 200"));
}

TEST_F(HttpServerTest, StreamsToTheEndForHttp10) {
  start();
  const std::string answer = exchange("GET /pieces HTTP/1.0\r\n\r\n");
  EXPECT_THAT(answer, Not(HasSubstr("chunked")));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\none two three")) << answer;
}

TEST_F(HttpServerTest, HeadIsGetWithoutTheBody) {
  start();
  HttpClient client(server_->port());
  client.send("HEAD /health HTTP/1.1\r\nHost: test\r\n\r\n");
  const std::string head = client.read_until("\r\n\r\n");
  EXPECT_THAT(head, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 13\r\n"));
  client.send(post("/echo", "x"));
  EXPECT_THAT(client.read_until("POST /echo:x"), StartsWith("HTTP/1.1 200")) << "nothing was left in between";
}

TEST_F(HttpServerTest, KnownPathWrongMethodIs405) {
  start();
  for (const auto* method : {"GET", "PUT", "DELETE", "TRACE", "OPTIONS", "PATCH", "BREW"}) {
    HttpClient client(server_->port());
    client.send(std::string(method) + " /echo HTTP/1.1\r\nHost: test\r\n\r\n");
    const std::string answer = client.read_until("}}");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: POST\r\n")) << method;
    client.send(post("/echo", "x"));
    EXPECT_THAT(client.read_until("POST /echo:x"), StartsWith("HTTP/1.1 200")) << method;
  }
  EXPECT_THAT(exchange(post("/health", "{}")), HasSubstr("Allow: GET, HEAD\r\n"));
}

TEST_F(HttpServerTest, UnknownPathIs404AndTheConnectionStaysInStep) {
  start();
  HttpClient client(server_->port());
  client.send(post("/nothing", get("/health")) + post("/echo", "x"));
  const std::string answer = client.read_until("POST /echo:x");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(answer, HasSubstr("\"error\""));
  EXPECT_THAT(answer, Not(HasSubstr("GET /health"))) << "a body is not a request";
}

TEST_F(HttpServerTest, WildcardsStandForWhatIsBelow) {
  start();
  EXPECT_THAT(exchange(get("/items/a/b")), HasSubstr("GET /items/a/b"));
  EXPECT_THAT(exchange(get("/items/")), StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpServerTest, AHandlerThatThrowsIs500) {
  start();
  EXPECT_THAT(exchange(get("/broken")), StartsWith("HTTP/1.1 500"));
  EXPECT_THAT(exchange(get("/health")), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, MalformedRequestsGetOneAnswerAndNoMore) {
  start();
  for (const auto* bytes :
       {"POST /echo HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
        "POST /echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "nonsense\r\n\r\n",
        "POST /echo HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"}) {
    HttpClient client(server_->port());
    client.send(std::string(bytes) + get("/health"));
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 Bad Request\r\n")) << bytes;
    EXPECT_THAT(answer, HasSubstr("Connection: close\r\n")) << bytes;
    EXPECT_THAT(answer, Not(HasSubstr("GET /health"))) << bytes;
  }
}

TEST_F(HttpServerTest, TooLargeIsSaidEvenWhileTheClientSends) {
  HttpLimits limits;
  limits.body_bytes = 1000;
  start(limits);
  HttpClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000\r\n\r\n");
  for (int i = 0; i < 10; ++i) client.send(std::string(10'000, 'x'));
  EXPECT_THAT(client.read_to_end(), StartsWith("HTTP/1.1 413"));
}

TEST_F(HttpServerTest, ContinuesAClientThatAsks) {
  start();
  HttpClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("hi");
  EXPECT_THAT(client.read_until("POST /echo:hi"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, SlowSendersAreCutOff) {
  HttpLimits limits;
  limits.head = milliseconds(100);
  limits.body = milliseconds(100);
  limits.idle = milliseconds(100);
  start(limits);
  HttpClient slow_head(server_->port());
  slow_head.send("GET /health HT");
  EXPECT_THAT(slow_head.read_to_end(), StartsWith("HTTP/1.1 408"));
  HttpClient slow_body(server_->port());
  slow_body.send("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_THAT(slow_body.read_to_end(), StartsWith("HTTP/1.1 408"));
  HttpClient idle(server_->port());
  EXPECT_EQ(idle.read_to_end(), "");
}

TEST_F(HttpServerTest, ABodyThatEndsEarlyIs400) {
  start();
  EXPECT_THAT(exchange("POST /echo HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(exchange("GET /health HT"), StartsWith("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, MoreConnectionsThanAllowedAreTurnedAway) {
  HttpLimits limits;
  limits.connections = 2;
  start(limits);
  std::list<HttpClient> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back(server_->port()).send(get("/health"));
    clients.back().read_until("GET /health:");
  }
  EXPECT_THAT(HttpClient(server_->port()).read_to_end(), StartsWith("HTTP/1.1 503"));
  clients.front().send(get("/health"));
  EXPECT_THAT(clients.front().read_until("GET /health:"), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, HealthAnswersBesideManyOpenStreamsAndIdleConnections) {
  start();
  std::list<HttpClient> clients;
  for (int i = 0; i < 60; ++i) {
    clients.emplace_back(server_->port()).send(get("/slow-stream"));
    clients.back().read_until("\r\n\r\n");
    clients.emplace_back(server_->port()).send(get("/health"));
    clients.back().read_until("GET /health:");
  }
  EXPECT_THAT(exchange(get("/health")), StartsWith("HTTP/1.1 200"));
  release();
}

TEST_F(HttpServerTest, AClientThatClosesEndsItsAnswer) {
  start();
  for (const auto* path : {"/slow", "/slow-stream"}) {
    ending_ = Ending::kRunning;
    {
      HttpClient client(server_->port());
      client.send(get(path));
      std::this_thread::sleep_for(milliseconds(50));
    }
    EXPECT_EQ(wait_for_ending(), Ending::kClientGone) << path;
  }
}

TEST_F(HttpServerTest, AClientThatResetsEndsItsAnswer) {
  start();
  for (const auto* path : {"/slow", "/slow-stream"}) {
    ending_ = Ending::kRunning;
    HttpClient client(server_->port());
    client.send(get(path));
    std::this_thread::sleep_for(milliseconds(50));
    client.reset();
    EXPECT_EQ(wait_for_ending(), Ending::kClientGone) << path;
  }
  EXPECT_THAT(exchange(get("/health")), StartsWith("HTTP/1.1 200"));
}

TEST_F(HttpServerTest, AHalfClosedClientGetsItsAnswer) {
  start();
  for (const auto* path : {"/slow", "/slow-stream"}) {
    released_ = false;
    ending_ = Ending::kRunning;
    HttpClient client(server_->port());
    client.send(get(path));
    client.half_close();
    std::this_thread::sleep_for(milliseconds(500));
    release();
    const std::string answer = client.read_to_end();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(answer, HasSubstr("done")) << path;
    EXPECT_EQ(wait_for_ending(), Ending::kComplete) << path;
  }
}

TEST_F(HttpServerTest, DrainFinishesAnswersAndClosesTheRest) {
  start();
  HttpClient idle(server_->port());
  idle.send(get("/health"));
  idle.read_until("GET /health:");
  HttpClient busy(server_->port());
  busy.send(get("/slow-stream"));
  busy.read_until("\r\n\r\n");
  server_->drain();
  EXPECT_EQ(idle.read_to_end(), "") << "an idle connection closes";
  EXPECT_THAT(exchange(get("/health")), HasSubstr("Connection: close\r\n")) << "new ones are served once";
  release();
  EXPECT_THAT(busy.read_to_end(), HasSubstr("done"));
  server_->stop(milliseconds(5'000));
}

TEST_F(HttpServerTest, StopBreaksOffWhatDoesNotEnd) {
  start();
  HttpClient busy(server_->port());
  busy.send(get("/slow-stream"));
  busy.read_until("\r\n\r\n");
  server_->stop(milliseconds(50));
  EXPECT_EQ(ending_, Ending::kClientGone);
}

TEST_F(HttpServerTest, ATakenPortIsAnError) {
  start();
  const auto second = HttpServer::start({.address = {.host = "127.0.0.1", .port = server_->port()}}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(server_->port())));
  EXPECT_FALSE(HttpServer::start({.address = {.host = "no such host.invalid", .port = 0}}, {}).ok());
}

}  // namespace
}  // namespace lily
