// What the server does with requests and answers. Limits are in http_server_limits_test.cc, crowds
// and hostile clients in http_server_load_test.cc.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "tests/server/test_handler.h"

namespace minke::test {
namespace {

using std::chrono::milliseconds;

TEST(HttpServer, AnswersAndKeepsTheConnection) {
  const auto server = StartServer(AnyPort(), Echo);
  RawClient client(server->port());
  for (int i = 0; i < 3; ++i) {
    const RawAnswer answer = client.Ask(PostRequest("/a%20b?c=d", "body"));
    EXPECT_TRUE(answer.complete);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /a b?c=d body");
    EXPECT_EQ(answer.headers.at("content-type"), "text/plain");
    EXPECT_EQ(answer.headers.at("date").size(), 29u);
    EXPECT_EQ(answer.headers.count("connection"), 0u);
  }
  EXPECT_EQ(server->status().connections, 1);
  EXPECT_EQ(server->status().connections_total, 1);
  EXPECT_EQ(server->status().requests_total, 3);
  EXPECT_EQ(server->status().disconnects_total, 0);
  EXPECT_EQ(server->status().refused_total, 0);
}

TEST(HttpServer, HandsOverHeadersBodyAndAddress) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port());
  client.Send("PUT /p HTTP/1.1\r\nHost: h\r\nX-A: b\r\nContent-Length: 3\r\n\r\nxyz");
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  EXPECT_EQ(exchange->request().method, "PUT");
  EXPECT_EQ(exchange->request().Header("x-a"), "b");
  EXPECT_EQ(exchange->request().client, "127.0.0.1");
  EXPECT_EQ(exchange->request().body, "xyz");
  EXPECT_EQ(exchange->TakeBody(), "xyz");
  EXPECT_EQ(exchange->request().body, "");
  exchange->Respond(204, {}, "not sent");
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 204);
  EXPECT_EQ(answer.headers.count("content-length"), 0u);
}

TEST(HttpServer, HeadHasNoBody) {
  const auto server = StartServer(AnyPort(), Echo);
  RawClient client(server->port());
  client.Send("HEAD /x HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.ReadAnswer(true).headers.at("content-length"), "9");
  EXPECT_EQ(client.Ask(GetRequest("/y")).body, "GET /y? ");
}

TEST(HttpServer, ClosesWhenTheClientWantsIt) {
  const auto server = StartServer(AnyPort(), Echo);
  RawClient close(server->port());
  EXPECT_EQ(close.Ask(GetRequest("/", "Connection: close\r\n")).headers.at("connection"), "close");
  EXPECT_TRUE(close.WaitForEnd());
  RawClient old(server->port());
  EXPECT_EQ(old.Ask("GET / HTTP/1.0\r\n\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(old.WaitForEnd());
  RawClient kept(server->port());
  for (int i = 0; i < 2; ++i) {
    const RawAnswer answer = kept.Ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(answer.headers.at("connection"), "keep-alive");
  }
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  const auto server = StartServer(AnyPort(), Echo);
  RawClient client(server->port());
  client.Send(GetRequest("/1") + PostRequest("/2", "two") + GetRequest("/3"));
  EXPECT_EQ(client.ReadAnswer().body, "GET /1? ");
  EXPECT_EQ(client.ReadAnswer().body, "POST /2? two");
  EXPECT_EQ(client.ReadAnswer().body, "GET /3? ");

  Inbox inbox;
  const auto slow = StartServer(AnyPort(), inbox.handler());
  RawClient other(slow->port());
  other.Send(GetRequest("/1") + GetRequest("/2"));
  const auto first = inbox.Next();
  ASSERT_TRUE(first);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(slow->status().requests_total, 1) << "the second waits for the first's answer";
  first->Respond(200, {}, "first");
  EXPECT_EQ(other.ReadAnswer().body, "first");
  const auto second = inbox.Next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->request().path, "/2");
  second->Respond(200, {}, "second");
  EXPECT_EQ(other.ReadAnswer().body, "second");
}

TEST(HttpServer, MoreAheadThanItKeepsIsReadLater) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port());
  const std::string large(300 << 10, 'x');
  std::thread sender([&] { client.Send(GetRequest("/1") + PostRequest("/2", large)); });
  const auto first = inbox.Next();
  ASSERT_TRUE(first);
  std::this_thread::sleep_for(milliseconds(50));
  first->Respond(200, {}, "first");
  const auto second = inbox.Next();
  sender.join();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->request().body, large);
}

TEST(HttpServer, ContinuesWhenAsked) {
  const auto server = StartServer(AnyPort(), Echo);
  RawClient client(server->port());
  const std::string head =
      "POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  EXPECT_EQ(client.Ask(head).status, 100);
  EXPECT_EQ(client.Ask("ok").body, "POST /x? ok");
  // Whoever did not wait needs no leave.
  EXPECT_EQ(client.Ask(head + "ok").body, "POST /x? ok");
}

TEST(HttpServer, StreamsPiecesAsTheyAreSent) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port());
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  exchange->Start(200, {{"Content-Type", "text/event-stream"}});
  EXPECT_NE(client.ReadUntil("\r\n\r\n").find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  exchange->Send("hello");
  EXPECT_EQ(client.ReadUntil("hello\r\n"), "5\r\nhello\r\n");
  exchange->Send("");  // must not look like the end
  exchange->Send(std::string(17, 'x'));
  EXPECT_EQ(client.ReadUntil("x\r\n"), "11\r\n" + std::string(17, 'x') + "\r\n");
  exchange->Close();
  EXPECT_EQ(client.ReadUntil("0\r\n\r\n"), "0\r\n\r\n");
  exchange->Send("ignored");
  exchange->Respond(200, {}, "ignored");
  client.Send(GetRequest("/"));
  const auto next = inbox.Next();
  ASSERT_TRUE(next);
  next->Respond(200, {}, "kept");
  EXPECT_EQ(client.ReadAnswer().body, "kept");
}

TEST(HttpServer, StreamsWithoutChunksToOldClientsAndWithoutBodyToHead) {
  const auto server = StartServer(AnyPort(), [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Start(200, {});
    exchange->Send("one ");
    exchange->Send("two");
    exchange->Close();
  });
  RawClient old(server->port());
  const RawAnswer answer = old.Ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(answer.complete);
  EXPECT_EQ(answer.body, "one two");
  EXPECT_EQ(answer.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  RawClient head(server->port());
  head.Send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(head.ReadAnswer(true).headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(head.Ask(GetRequest("/")).body, "one two");
}

TEST(HttpServer, ALargeAnswerArrivesWhole) {
  std::string large(20 << 20, 'x');
  for (size_t i = 0; i < large.size(); i += 1000) large[i] = static_cast<char>('a' + i % 26);
  const auto server = StartServer(AnyPort(), [&](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(200, {}, large);
  });
  RawClient client(server->port());
  EXPECT_TRUE(client.Ask(GetRequest("/")).body == large);
  EXPECT_TRUE(client.Ask(GetRequest("/")).body == large);
}

TEST(HttpServer, AnExchangeThatIsDroppedIsA500) {
  const auto server =
      StartServer(AnyPort(), [](const std::shared_ptr<HttpExchange>&) { /* lets it go */ });
  RawClient client(server->port());
  EXPECT_EQ(client.Ask(GetRequest("/")).status, 500);
  EXPECT_EQ(client.Ask(GetRequest("/")).status, 500);
}

TEST(HttpServer, AHandlerThatThrowsIsA500) {
  const auto server = StartServer(AnyPort(), [](const std::shared_ptr<HttpExchange>& exchange) {
    if (exchange->request().path == "/throw") throw std::runtime_error("secret");
    Echo(exchange);
  });
  RawClient client(server->port());
  const RawAnswer answer = client.Ask(GetRequest("/throw"));
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(answer.body.find("secret"), std::string::npos);
  EXPECT_EQ(client.Ask(GetRequest("/")).status, 200);
}

TEST(HttpServer, AStreamThatIsDroppedIsCut) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port());
  client.Send(GetRequest("/"));
  auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  Signal gone;
  exchange->OnGone([&] { gone.Set(); });
  exchange->Start(200, {});
  exchange->Send("half");
  client.ReadUntil("half\r\n");
  exchange.reset();
  EXPECT_EQ(client.ReadToEnd(), "") << "no last chunk, which would say that all is well";
  EXPECT_EQ(gone.count(), 0) << "it was not the client who went";
  EXPECT_EQ(server->status().disconnects_total, 0);
}

TEST(HttpServer, HeadersCannotForgeHeaders) {
  const auto server = StartServer(AnyPort(), [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(200,
                      {{"X-A", "b\r\nX-Forged: c"},
                       {"X-D\r\nX-Forged", "e"},
                       {"Content-Length", "999"},
                       {"connection", "close"},
                       {"Transfer-Encoding", "chunked"}},
                      "body");
  });
  RawClient client(server->port());
  const RawAnswer answer = client.Ask(GetRequest("/"));
  EXPECT_EQ(answer.headers.at("x-a"), "b  X-Forged: c");
  EXPECT_EQ(answer.headers.count("x-forged"), 0u);
  EXPECT_EQ(answer.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(answer.headers.count("connection"), 0u);
  EXPECT_EQ(answer.body, "body");
}

// How a client can leave.
enum class Leave { kClose, kHalfClose, kReset };

TEST(Reports, LlamaCpp24496ClosedSocketsAreNoticedInEveryState) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  int64_t disconnects = 0;
  for (const Leave leave : {Leave::kClose, Leave::kHalfClose, Leave::kReset}) {
    for (const bool streaming : {false, true}) {
      RawClient client(server->port());
      client.Send(PostRequest("/", "body"));
      const auto exchange = inbox.Next();
      ASSERT_TRUE(exchange);
      Signal gone;
      exchange->OnGone([&] { gone.Set(); });
      if (streaming) {
        exchange->Start(200, {});
        exchange->Send("piece");
        client.ReadUntil("piece\r\n");
      }
      EXPECT_FALSE(exchange->gone());
      if (leave == Leave::kClose) client.Close();
      if (leave == Leave::kHalfClose) client.ShutdownSend();
      if (leave == Leave::kReset) client.Reset();
      EXPECT_TRUE(gone.Wait()) << static_cast<int>(leave) << streaming;
      EXPECT_TRUE(exchange->gone());
      EXPECT_EQ(server->status().disconnects_total, ++disconnects);
      // Nothing of this has an effect, or a signal that would end the process.
      exchange->Start(200, {});
      for (int i = 0; i < 100; ++i) exchange->Send("too late");
      exchange->Close();
      exchange->Respond(200, {}, "too late");
      int calls = 0;
      exchange->OnGone([&] { ++calls; });
      EXPECT_EQ(calls, 1) << "at once, by the call";
      EXPECT_EQ(gone.count(), 1);
    }
  }
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
}

TEST(HttpServer, ACompleteAnswerIsNotGone) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  auto kept_alive = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = kept_alive;
  Signal gone;
  RawClient client(server->port());
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  exchange->OnGone([&gone, kept_alive] { gone.Set(); });
  kept_alive.reset();
  exchange->Respond(200, {}, "body");
  EXPECT_TRUE(watched.expired()) << "a callback that cannot come is let go";
  exchange->OnGone([&] { gone.Set(); });
  EXPECT_EQ(client.ReadAnswer().body, "body");
  client.Close();
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
  EXPECT_EQ(gone.count(), 0);
  EXPECT_FALSE(exchange->gone());
  EXPECT_EQ(server->status().disconnects_total, 0);
}

TEST(HttpServer, AHalfClosedClientStillGetsACompleteAnswer) {
  const std::string large(30 << 20, 'x');
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port());
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  exchange->Respond(200, {}, large);
  client.ShutdownSend();
  EXPECT_TRUE(client.ReadAnswer().body == large);
  EXPECT_TRUE(client.WaitForEnd());
}

TEST(HttpServer, StopAcceptingLetsRunningAnswersEnd) {
  Inbox inbox;
  const auto server = StartServer(AnyPort(), inbox.handler());
  RawClient client(server->port());
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  RawClient idle(server->port());
  idle.Send(GetRequest("/"));
  inbox.Next()->Respond(200, {}, "kept");
  EXPECT_EQ(idle.ReadAnswer().headers.count("connection"), 0u);
  server->StopAccepting();
  EXPECT_TRUE(WaitUntil([&] { return !RawClient(server->port()).connected(); }));
  exchange->Respond(200, {}, "finished");
  const RawAnswer answer = client.ReadAnswer();
  EXPECT_EQ(answer.body, "finished");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_TRUE(client.WaitForEnd());
  idle.Send(GetRequest("/"));
  inbox.Next()->Respond(503, {}, "draining");
  EXPECT_EQ(idle.ReadAnswer().headers.at("connection"), "close");
}

TEST(HttpServer, WaitsUntilASlowClientHasItsAnswer) {
  const std::string large(30 << 20, 'x');
  Inbox inbox;
  auto server = StartServer(AnyPort(), inbox.handler());
  EXPECT_TRUE(server->WaitUntilSent(0));
  RawClient client(server->port(), "127.0.0.1", 4096);
  client.Send(GetRequest("/"));
  const auto exchange = inbox.Next();
  ASSERT_TRUE(exchange);
  EXPECT_FALSE(server->WaitUntilSent(0.01)) << "nobody has made it yet";
  exchange->Respond(200, {}, large);
  EXPECT_FALSE(server->WaitUntilSent(0.1)) << "nobody has read it yet";
  RawAnswer answer;
  std::thread reader([&] { answer = client.ReadAnswer(); });
  EXPECT_TRUE(server->WaitUntilSent(60));
  server.reset();
  reader.join();
  EXPECT_TRUE(answer.complete);
  EXPECT_TRUE(answer.body == large);
}

TEST(HttpServer, ExchangesMayOutliveTheServer) {
  Inbox inbox;
  auto server = StartServer(AnyPort(), inbox.handler());
  RawClient waiting(server->port());
  RawClient streaming(server->port());
  waiting.Send(GetRequest("/"));
  const auto first = inbox.Next();
  streaming.Send(GetRequest("/"));
  const auto second = inbox.Next();
  ASSERT_TRUE(first && second);
  std::atomic<int> gone = 0;
  first->OnGone([&] { ++gone; });
  second->OnGone([&] { ++gone; });
  second->Start(200, {});
  std::jthread sender([&second](const std::stop_token& stop) {
    while (!stop.stop_requested()) second->Send("piece");
  });
  streaming.ReadUntil("piece\r\n");
  server.reset();
  EXPECT_EQ(gone, 2);
  EXPECT_TRUE(waiting.WaitForEnd());
  EXPECT_TRUE(streaming.WaitForEnd());
  first->Respond(200, {}, "too late");
  EXPECT_TRUE(second->gone());
}

TEST(HttpServer, StartNamesWhatIsWrong) {
  const auto server = StartServer(AnyPort(), Echo);
  HttpOptions options;
  options.port = server->port();
  const auto taken = HttpServer::Start(options, Echo);
  ASSERT_FALSE(taken.has_value());
  EXPECT_EQ(taken.error().code, ErrorCode::kIo);
  EXPECT_NE(taken.error().message.find("127.0.0.1:" + std::to_string(options.port)),
            std::string::npos);
  EXPECT_NE(taken.error().message.find("another port"), std::string::npos);
  options.address = "nowhere";
  const auto name = HttpServer::Start(options, Echo);
  ASSERT_FALSE(name.has_value());
  EXPECT_NE(name.error().message.find("'nowhere'"), std::string::npos);
  options.address = "192.0.2.1";  // for documentation; no machine has it
  EXPECT_FALSE(HttpServer::Start(options, Echo).has_value());
  options = AnyPort();
  options.threads = 0;
  EXPECT_FALSE(HttpServer::Start(options, Echo).has_value());
  options = AnyPort();
  options.idle_seconds_max = 0;
  EXPECT_FALSE(HttpServer::Start(options, Echo).has_value());
}

TEST(HttpServer, ListensOnLocalhostByName) {
  HttpOptions options = AnyPort();
  options.address = "localhost";
  const auto server = StartServer(options, Echo);
  EXPECT_EQ(RawClient(server->port()).Ask(GetRequest("/")).status, 200);
}

TEST(HttpServer, ListensOnIpv6) {
  HttpOptions options = AnyPort();
  options.address = "::1";
  auto server = HttpServer::Start(options, [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(200, {}, exchange->request().client);
  });
  if (!server) GTEST_SKIP() << "this system has no IPv6: " << server.error().message;
  EXPECT_EQ(RawClient((*server)->port(), "::1").Ask(GetRequest("/")).body, "::1");
  options.address = "::";
  server = HttpServer::Start(options, [](const std::shared_ptr<HttpExchange>& exchange) {
    exchange->Respond(200, {}, exchange->request().client);
  });
  ASSERT_TRUE(server.has_value());
  EXPECT_EQ(RawClient((*server)->port(), "::1").Ask(GetRequest("/")).body, "::1");
  EXPECT_EQ(RawClient((*server)->port(), "127.0.0.1").Ask(GetRequest("/")).body, "127.0.0.1");
}

// The reader's tests split between every pair of bytes; here the pieces really come apart.
TEST(HttpServer, ARequestMayComeInPieces) {
  const auto server = StartServer(AnyPort(), Echo);
  RawClient client(server->port());
  const std::string request =
      "POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (size_t split = 1; split < request.size(); ++split) {
    client.Send(request.substr(0, split));
    std::this_thread::sleep_for(milliseconds(3));
    const RawAnswer answer = client.Ask(request.substr(split));
    ASSERT_EQ(answer.body, "POST /x? abc") << "split at " << split;
  }
}

}  // namespace
}  // namespace minke::test
