// Crowds, hostile clients, and threads that meet.
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "server/http_server.h"
#include "tests/server/test_handler.h"

namespace minke::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(HttpLoad, TwoThousandConnectionsAtOnce) {
  constexpr int kConnections = 2000;
  if (!AllowOpenFiles(2 * kConnections + 200)) {
    GTEST_SKIP() << "this system forbids the 4,200 descriptors that both ends need";
  }
  HttpOptions options = AnyPort();
  options.threads = 2;
  const auto server = StartServer(options, Echo);
  std::vector<RawClient> clients;
  clients.reserve(kConnections);
  for (int i = 0; i < kConnections; ++i) {
    clients.emplace_back(server->port());
    ASSERT_TRUE(clients.back().connected()) << i;
  }
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == kConnections; }));
  for (RawClient& client : clients) ASSERT_TRUE(client.Send("POST /x HTTP/1.1\r\nContent-Len"));
  EXPECT_EQ(RawClient(server->port()).Ask(GetRequest("/")).status, 200) << "while all are half-way";
  for (RawClient& client : clients) ASSERT_TRUE(client.Send("gth: 4\r\n\r\nbody"));
  for (RawClient& client : clients) ASSERT_EQ(client.ReadAnswer().body, "POST /x? body");
  clients.clear();
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
  EXPECT_EQ(server->status().requests_total, kConnections + 1);
  EXPECT_EQ(server->status().refused_total, 0);
  EXPECT_EQ(server->status().disconnects_total, 0);
}

// Each stream is written by a thread of its own while others write theirs, clients come and go,
// and the counters are read.
TEST(HttpLoad, StreamsFromManyThreads) {
  constexpr int kStreams = 16;
  constexpr int kPieces = 200;
  HttpOptions options = AnyPort();
  options.threads = 3;
  Inbox inbox;
  const auto server = StartServer(options, inbox.handler());
  std::atomic<int> gone = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&inbox, &gone] {
      const auto exchange = inbox.Next();
      if (!exchange) return;
      exchange->OnGone([&gone] { ++gone; });
      exchange->Start(200, {});
      for (int piece = 0; piece < kPieces; ++piece) exchange->Send("data: piece\n\n");
      exchange->Close();
    });
    threads.emplace_back([&server, i] {
      RawClient client(server->port());
      client.Send(GetRequest("/"));
      if (i % 4 == 3) {
        client.ReadSome();
        return client.Reset();
      }
      const RawAnswer answer = client.ReadAnswer();
      EXPECT_TRUE(answer.complete);
      EXPECT_EQ(answer.body.size(), std::string("data: piece\n\n").size() * kPieces);
    });
  }
  for (int i = 0; i < 100; ++i) EXPECT_GE(server->status().connections_total, 0);
  threads.clear();
  EXPECT_LE(gone, kStreams / 4);
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
  EXPECT_EQ(server->status().requests_total, kStreams);
}

// Answers that come at the same moment as the end of their client or of the server.
TEST(HttpLoad, AnswersMeetDisconnects) {
  constexpr int kRounds = 60;
  Inbox inbox;
  HttpOptions options = AnyPort();
  options.threads = 2;
  auto server = StartServer(options, inbox.handler());
  std::atomic<int> gone = 0;
  for (int round = 0; round < kRounds; ++round) {
    RawClient client(server->port());
    client.Send(GetRequest("/"));
    auto exchange = inbox.Next();
    ASSERT_TRUE(exchange);
    std::jthread answerer([&gone, round, exchange = std::move(exchange)] {
      exchange->OnGone([&gone] { ++gone; });
      exchange->Start(200, {});
      exchange->Send("piece");
      if (round % 3 == 0) return;
      exchange->Close();
    });
    if (round == kRounds - 1) server.reset();
    client.Reset();
  }
  EXPECT_LE(gone, kRounds);
}

class HostileClient {
 public:
  HostileClient(uint16_t port, uint32_t seed) : port_(port), random_(seed) {}

  void Attack() {
    RawClient client(port_);
    if (!client.connected()) return;
    switch (random_() % 6) {
      case 0:  // goes at once, or after a part
        client.Send(Request().substr(0, random_() % 60));
        return random_() % 2 == 0 ? client.Reset() : client.Close();
      case 1:  // half-closes and waits
        client.Send(Request());
        client.ShutdownSend();
        client.WaitForEnd(milliseconds(20));
        return;
      case 2:  // dribbles
        for (const char c : Request().substr(0, 30)) {
          if (!client.Send({&c, 1})) return;
        }
        return;
      case 3: {  // noise
        std::string noise(random_() % 5000, '\0');
        for (char& c : noise) c = static_cast<char>(random_());
        client.Send(noise);
        client.ReadSome(milliseconds(5));
        return;
      }
      case 4:  // asks for much and does not read it
        for (int i = 0; i < 50; ++i) client.Send(Request());
        return client.Reset();
      default:
        client.Send(Request() + Request());
        client.ReadSome(milliseconds(20));
    }
  }

 private:
  std::string Request() {
    static const std::vector<std::string> kRequests = {
        GetRequest("/a?b"), PostRequest("/", std::string(2000, 'x')),
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;e=f\r\nhello\r\n0\r\nT: u\r\n\r\n",
        "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 50000000\r\n\r\n",
        "HEAD http://h/p HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"};
    static const std::vector<std::string> kPieces = {"\r\n",
                                                     "\n",
                                                     "\0",
                                                     ":",
                                                     " ",
                                                     "\t",
                                                     "99999999999",
                                                     "Transfer-Encoding: chunked\r\n",
                                                     "Content-Length: 7\r\n",
                                                     "HTTP/1.1",
                                                     "%",
                                                     "\xFF\xFE",
                                                     "0\r\n\r\n"};
    std::string request = kRequests[random_() % kRequests.size()];
    for (uint32_t changes = random_() % 5; changes > 0; --changes) {
      const size_t at = random_() % request.size();
      request.replace(at, random_() % 8, kPieces[random_() % kPieces.size()]);
    }
    return request;
  }

  uint16_t port_;
  std::mt19937 random_;
};

// Briefly: tests/serve/hostile_server_test.cc has the same before the whole server, for longer.
TEST(HttpLoad, HealthyClientsAreServedAmongHostileOnes) {
  constexpr int kSeconds = 5;
  HttpOptions options = AnyPort();
  options.connections_max = 64;
  options.header_seconds_max = 0.5;
  options.body_seconds_max = 0.5;
  options.idle_seconds_max = 1;
  options.write_seconds_max = 0.5;
  const auto server = StartServer(options, Echo);
  const auto end = steady_clock::now() + std::chrono::seconds(kSeconds);
  std::atomic<int> attacks = 0;
  std::vector<std::jthread> threads;
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    threads.emplace_back([&, seed] {
      HostileClient hostile(server->port(), seed);
      for (; steady_clock::now() < end; ++attacks) hostile.Attack();
    });
  }
  // Eighty that say nothing hold more than all the places there are.
  threads.emplace_back([&] {
    while (steady_clock::now() < end) {
      std::vector<RawClient> silent;
      for (int i = 0; i < 80 && steady_clock::now() < end; ++i) {
        silent.emplace_back(server->port());
        silent.back().Send("GET / HT");
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
  });
  int served = 0;
  auto slowest = steady_clock::duration::zero();
  while (steady_clock::now() < end) {
    const auto start = steady_clock::now();
    RawClient client(server->port());
    const RawAnswer answer = client.Ask(PostRequest("/healthy", "body"));
    ASSERT_EQ(answer.body, "POST /healthy? body") << "after " << served << " requests";
    slowest = std::max(slowest, steady_clock::now() - start);
    ++served;
    std::this_thread::sleep_for(milliseconds(10));
  }
  threads.clear();
  EXPECT_GT(served, kSeconds);
  EXPECT_GT(attacks, kSeconds);
  EXPECT_LT(slowest, std::chrono::seconds(5));
  EXPECT_GT(server->status().refused_total, 0);
  EXPECT_TRUE(WaitUntil([&] { return server->status().connections == 0; }));
  RecordProperty("served", served);
  RecordProperty("attacks", attacks);
}

}  // namespace
}  // namespace minke::test
