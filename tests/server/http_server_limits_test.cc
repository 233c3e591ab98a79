// Every limit of HttpOptions, at it and past it.
#include <gtest/gtest.h>

#include "server/http_server.h"
#include "tests/server/test_handler.h"

namespace minke::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The status of the answer to `bytes` from a server with `options`; the connection must end.
int StatusThenEnd(const HttpOptions& options, std::string_view bytes) {
  const auto server = StartServer(options, Echo);
  RawClient client(server->port());
  const RawAnswer answer = client.Ask(bytes);
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_FALSE(answer.body.empty());
  EXPECT_TRUE(client.WaitForEnd());
  EXPECT_EQ(server->status().refused_total, 1);
  EXPECT_EQ(RawClient(server->port()).Ask(GetRequest("/")).status, 200);
  return answer.status;
}

TEST(HttpLimits, RefusalsHaveTheirStatus) {
  const HttpOptions options = AnyPort();
  EXPECT_EQ(StatusThenEnd(options, "nonsense\r\n\r\n"), 400);
  EXPECT_EQ(StatusThenEnd(options, "GET / HTTP/1.1\n\n"), 400);
  EXPECT_EQ(StatusThenEnd(options, "GET / HTTP/3.0\r\n\r\n"), 505);
  EXPECT_EQ(StatusThenEnd(options, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(StatusThenEnd(options,
                          "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                          "Content-Length: 1\r\n\r\n"),
            400);
  EXPECT_EQ(StatusThenEnd(options, "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n"), 501);
  EXPECT_EQ(StatusThenEnd(options, "POST / HTTP/1.1\r\nExpect: x\r\n\r\n"), 417);
}

TEST(HttpLimits, RefusalsAreInTheWordsOfTheApi) {
  HttpOptions options = AnyPort();
  options.body_bytes_max = 3;
  options.error_answer = [](int status, const HttpRequest* head, std::string_view message) {
    HttpErrorAnswer answer;
    answer.headers = {{"x-request-id", "7"}};
    answer.body = "{\"" + std::to_string(status) + "\":\"" +
                  (head == nullptr ? std::string() : head->path) +
                  "\",\"m\":" + std::to_string(message.empty() ? 0 : 1) + "}";
    return answer;
  };
  const auto server = StartServer(options, Echo);
  const RawAnswer large = RawClient(server->port()).Ask(PostRequest("/v1/messages?x", "four"));
  EXPECT_EQ(large.body, "{\"413\":\"/v1/messages\",\"m\":1}");
  EXPECT_EQ(large.headers.at("content-type"), "application/json");
  EXPECT_EQ(large.headers.at("x-request-id"), "7");
  EXPECT_EQ(RawClient(server->port()).Ask("x\r\n\r\n").body, "{\"400\":\"\",\"m\":1}");
}

TEST(HttpLimits, HeaderBytes) {
  HttpOptions options = AnyPort();
  options.header_bytes_max = 1000;
  const std::string rest = "GET / HTTP/1.1\r\nA: \r\n\r\n";
  const std::string most(1000 - rest.size(), 'x');
  const auto server = StartServer(options, Echo);
  EXPECT_EQ(RawClient(server->port()).Ask("GET / HTTP/1.1\r\nA: " + most + "\r\n\r\n").status, 200);
  EXPECT_EQ(StatusThenEnd(options, "GET / HTTP/1.1\r\nA: " + most + "x\r\n\r\n"), 431);
  // A client that goes on sending still gets the answer.
  EXPECT_EQ(StatusThenEnd(options, "GET /" + std::string(1 << 20, 'x')), 431);
}

TEST(HttpLimits, HeaderCount) {
  HttpOptions options = AnyPort();
  options.headers_max = 2;
  const auto server = StartServer(options, Echo);
  EXPECT_EQ(RawClient(server->port()).Ask(GetRequest("/", "A: b\r\n")).status, 200);
  EXPECT_EQ(StatusThenEnd(options, GetRequest("/", "A: b\r\nC: d\r\n")), 431);
}

TEST(HttpLimits, BodyBytes) {
  HttpOptions options = AnyPort();
  options.body_bytes_max = 1 << 20;
  const std::string most(1 << 20, 'x');
  const auto server = StartServer(options, Echo);
  EXPECT_EQ(RawClient(server->port()).Ask(PostRequest("/", most)).status, 200);
  EXPECT_EQ(StatusThenEnd(options, PostRequest("/", most + "x")), 413);
  const std::string chunked =
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n100000\r\n" + most + "\r\n";
  EXPECT_EQ(RawClient(server->port()).Ask(chunked + "0\r\n\r\n").status, 200);
  EXPECT_EQ(StatusThenEnd(options, chunked + "1\r\nx\r\n"), 413);
}

// Not told to go on, it need not send what will not be read.
TEST(HttpLimits, TooLargeABodyIsRefusedBeforeItComes) {
  HttpOptions options = AnyPort();
  options.body_bytes_max = 10;
  EXPECT_EQ(StatusThenEnd(options,
                          "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n"),
            413);
}

TEST(HttpLimits, BodiesTogether) {
  HttpOptions options = AnyPort();
  options.body_bytes_max = 100'000;
  options.bodies_bytes_max = 150'000;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  const std::string head = "POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n";
  RawClient first(server->port());
  first.Send(head + std::string(99'999, 'x'));
  RawClient small(server->port());
  small.Send(PostRequest("/", std::string(40'000, 'x')));
  const auto answered = inbox.Next();
  ASSERT_TRUE(answered) << "a complete body does not count any more";
  std::this_thread::sleep_for(milliseconds(300));  // the rest of the first one is read
  RawClient second(server->port());
  const RawAnswer refused = second.Ask(head + std::string(99'999, 'x'));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  first.Send("x");
  ASSERT_TRUE(inbox.Next());
  RawClient third(server->port());
  third.Send(head + std::string(100'000, 'x'));
  ASSERT_TRUE(inbox.Next()) << "what was given up counts no more either";
}

TEST(HttpLimits, HeaderSecondsStopASlowLoris) {
  HttpOptions options = AnyPort();
  options.header_seconds_max = 0.4;
  const auto server = StartServer(options, Echo);
  RawClient client(server->port());
  const auto start = steady_clock::now();
  client.Send("GET / HTTP/1.1\r\nA: ");
  std::string answer;
  while (answer.empty() && steady_clock::now() - start < kPatience) {
    client.Send("x");
    answer = client.ReadSome(milliseconds(30));
  }
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 408");
  EXPECT_GE(steady_clock::now() - start, milliseconds(390));
  EXPECT_EQ(server->status().refused_total, 1);
}

TEST(HttpLimits, BodySecondsWithoutAByte) {
  HttpOptions options = AnyPort();
  options.body_seconds_max = 0.3;
  EXPECT_EQ(StatusThenEnd(options, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"), 408);
  EXPECT_EQ(StatusThenEnd(options, "POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"), 408);
}

TEST(HttpLimits, ABodyMayBeSlowButNotTooSlow) {
  HttpOptions options = AnyPort();
  options.body_seconds_max = 1.5;
  options.bytes_per_second_min = 100;
  const auto server = StartServer(options, Echo);
  const std::string head = "POST / HTTP/1.1\r\nContent-Length: 300\r\n\r\n";
  // About 10 bytes a second: never long without a byte, and yet too slow.
  RawClient slow(server->port());
  slow.Send(head);
  std::string answer;
  for (int i = 0; i < 200 && answer.empty(); ++i) {
    slow.Send("x");
    answer = slow.ReadSome(milliseconds(100));
  }
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 408");
  // More than 1.5 s in all, and never that long without a byte.
  RawClient steady(server->port());
  steady.Send(head);
  for (int i = 0; i < 6; ++i) {
    steady.Send(std::string(50, 'x'));
    std::this_thread::sleep_for(milliseconds(300));
  }
  EXPECT_EQ(steady.ReadAnswer().status, 200);
}

TEST(HttpLimits, IdleSeconds) {
  HttpOptions options = AnyPort();
  options.idle_seconds_max = 1;
  const auto server = StartServer(options, Echo);
  RawClient silent(server->port());
  RawClient once(server->port());
  EXPECT_EQ(once.Ask(GetRequest("/")).status, 200);
  const auto start = steady_clock::now();
  EXPECT_TRUE(once.WaitForEnd());
  EXPECT_GE(steady_clock::now() - start, milliseconds(700));
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(server->status().refused_total, 0);
}

// Waiting for an answer is not being idle.
TEST(HttpLimits, AnAnswerMayTakeLongerThanEveryLimit) {
  HttpOptions options = AnyPort();
  options.idle_seconds_max = options.header_seconds_max = 0.5;
  options.body_seconds_max = options.write_seconds_max = 0.5;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  RawClient client(server->port());
  client.Send(PostRequest("/", "body"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  std::this_thread::sleep_for(milliseconds(800));
  exchange->Start(200, {});
  std::this_thread::sleep_for(milliseconds(800));
  exchange->Send("late");
  exchange->Close();
  EXPECT_EQ(client.ReadAnswer().body, "late");
}

TEST(HttpLimits, WriteSecondsWithoutAByteTaken) {
  HttpOptions options = AnyPort();
  options.write_seconds_max = 0.3;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  RawClient client(server->port(), "127.0.0.1", 4096);
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  Signal gone;
  exchange->OnGone([&] { gone.Set(); });
  exchange->Start(200, {});
  exchange->Send(std::string(15 << 20, 'x'));
  EXPECT_TRUE(gone.Wait());
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
  EXPECT_EQ(server->status().disconnects_total, 1);
}

TEST(HttpLimits, ACompleteAnswerMayBeTakenSlowlyButNotTooSlowly) {
  HttpOptions options = AnyPort();
  options.write_seconds_max = 0.5;
  options.bytes_per_second_min = 100 << 20;
  const std::string large(30 << 20, 'x');
  const auto server = StartServer(options, [&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(200, {}, large);
  });
  RawClient client(server->port(), "127.0.0.1", 4096);
  client.Send(GetRequest("/"));
  EXPECT_TRUE(WaitUntil([&] { return server->status().requests_total == 1; }));
  size_t bytes = 0;
  // Never long without taking a byte.
  for (int i = 0; i < 1000 && server->status().connections > 0; ++i) {
    bytes += client.ReadSome(milliseconds(10)).size();
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(server->status().connections, 0);
  EXPECT_LT(bytes, large.size());
  EXPECT_EQ(server->status().disconnects_total, 1);
}

TEST(HttpLimits, UnsentBytes) {
  HttpOptions options = AnyPort();
  options.unsent_bytes_max = 1 << 20;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  RawClient client(server->port(), "127.0.0.1", 4096);
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  Signal gone;
  exchange->OnGone([&] { gone.Set(); });
  exchange->Start(200, {});
  int sent = 0;
  while (!exchange->gone() && sent < 1000) {
    exchange->Send(std::string(100 << 10, 'x'));
    ++sent;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GE(sent, 10);
  EXPECT_TRUE(exchange->gone());
  EXPECT_TRUE(gone.Wait());
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
  EXPECT_EQ(server->status().disconnects_total, 1);
}

// A client that keeps up may get much more than that in all.
TEST(HttpLimits, UnsentBytesAreNotAllBytes) {
  HttpOptions options = AnyPort();
  options.unsent_bytes_max = 64 << 10;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  RawClient client(server->port());
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  exchange->Start(200, {});
  const std::string piece(10 << 10, 'x');
  client.ReadUntil("\r\n\r\n");
  for (int i = 0; i < 100; ++i) {
    exchange->Send(piece);
    std::string taken;
    while (taken.size() < piece.size() + 8) {
      const std::string more = client.ReadSome();
      ASSERT_FALSE(more.empty());
      taken += more;
    }
  }
  EXPECT_FALSE(exchange->gone());
  exchange->Close();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n");
}

// A client that is always a little behind gets everything, in order, and the end of it.
TEST(HttpServer, AClientThatIsAlwaysBehindMissesNothing) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port(), "127.0.0.1", 4096);
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  exchange->Start(200, {});
  std::string expected;
  for (int i = 0; i < 3000; ++i) {
    const std::string piece =
        std::to_string(i) + std::string(4000, static_cast<char>('a' + i % 26));
    exchange->Send(piece);
    expected += piece;
    if (i % 100 == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  exchange->Close();
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body == expected);
  EXPECT_EQ(client.Ask("x\r\n\r\n").status, 400);
}

TEST(HttpLimits, ConnectionsPastTheLimitReplaceTheLongestWaiting) {
  HttpOptions options = AnyPort();
  options.connections_max = 3;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  RawClient busy(server->port());
  busy.Send(GetRequest("/busy"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  RawClient longest(server->port());
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 2; }));
  RawClient half(server->port());
  half.Send("GET / HT");
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 3; }));
  RawClient one_more(server->port());
  EXPECT_TRUE(longest.WaitForEnd());
  EXPECT_FALSE(half.WaitForEnd(milliseconds(50)));
  one_more.Send(GetRequest("/"));
  const auto next = inbox.Next();
  ASSERT_TRUE(next);
  next->Respond(200, {}, "served");
  EXPECT_EQ(one_more.ReadAnswer().body, "served");
  exchange->Respond(200, {}, "still there");
  EXPECT_EQ(busy.ReadAnswer().body, "still there");
}

TEST(HttpLimits, ConnectionsPastTheLimitAreRefusedIfAllAreBusy) {
  HttpOptions options = AnyPort();
  options.connections_max = 2;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  RawClient first(server->port());
  first.Send(GetRequest("/"));
  RawClient second(server->port());
  second.Send(GetRequest("/"));
  const auto one = inbox.Next();
  const auto two = inbox.Next();
  ASSERT_TRUE(one && two);
  RawClient third(server->port());
  const RawAnswer answer = third.ReadAnswer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_TRUE(third.WaitForEnd());
  EXPECT_EQ(server->status().connections, 2);
  EXPECT_EQ(server->status().refused_total, 1);
}

}  // namespace
}  // namespace minke::test
