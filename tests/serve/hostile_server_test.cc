// The whole server among clients that mean no good, and some that mean well: over sockets, with
// everything but the model's arithmetic.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/serve/family_answers.h"
#include "tests/serve/hostile_requests.h"
#include "tests/serve/whole_server.h"
#include "tests/server/raw_client.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kSilentConnections = 2000;
constexpr int kHostileThreads = 4;
constexpr int kHealthyQuestionsMin = 8;  // every family, whole and as a stream
constexpr std::chrono::seconds kMoreTimeMax{60};
constexpr const char* kHealthyText = "All is well.";
// A healthy request is answered within this, whatever else comes in.
constexpr double kHealthySecondsMax = 15;
// From the first quarter of the time to the end. AddressSanitizer keeps what was freed for a while.
constexpr int64_t kResidentGrowthMax = int64_t{kSanitized ? 512 : 96} << 20;
// Room for one prompt of the whole context and little more, so that running requests are preempted
// and the cache evicts.
constexpr int64_t kHostileRamBytes = int64_t{4} << 20;
constexpr int64_t kHostileContextTokens = 36'000;

int NumberFromEnvironment(const char* name, int otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}

std::string Printable(const std::string& bytes) {
  constexpr size_t kShown = 1500;
  std::string text;
  for (const char c : bytes.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += std::isprint(byte) != 0 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return bytes.size() > kShown ? text + " ..." : text;
}

Result<std::unique_ptr<WholeServer>> StartAmongHostiles() {
  WholeServerOptions options;
  options.model_dir = std::string(MINKE_GOLDEN_DIR) + "/chat";
  std::string story = "Long ago.</think>";
  for (int i = 0; i < 60; ++i) story += fmt::format("And then {} came. ", i);
  options.script.scripts = {
      {"healthy", std::string("So it is.</think>") + kHealthyText},
      {"story", story},
      {"find",
       "I look.</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"find\">\n<｜DSML｜ parameter "
       "name=\"what\" string=\"true\">tea</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ "
       "calls>"},
      {"", "Hm.</think>Yes, <｜DSML｜ calls and no."}};
  options.script.step_delay = std::chrono::microseconds(200);
  options.engine.threads = 1;
  options.engine.context_tokens_max = kHostileContextTokens;
  options.engine.cache.ram_bytes = kHostileRamBytes;
  HttpOptions& http = options.server.http;
  http.header_seconds_max = 1;
  http.body_seconds_max = 1;
  http.write_seconds_max = 1;
  http.idle_seconds_max = 3600;  // those that say nothing stay
  options.server.keep_alive_seconds = 1;
  return WholeServer::Start(std::move(options));
}

// One connection after another, each hostile in its own way.
class HostileVisitor {
 public:
  HostileVisitor(uint16_t port, uint32_t seed) : port_(port), requests_(seed) {}

  void Visit() {
    test::RawClient client(port_);
    if (!client.connected()) return;
    switch (requests_.Below(10)) {
      case 0:  // goes at once, or after a part
        client.Send(requests_.Valid().substr(0, requests_.Below(400)));
        return requests_.Below(2) == 0 ? client.Reset() : client.Close();
      case 1:  // shuts its side and waits
        client.Send(requests_.Valid());
        client.ShutdownSend();
        client.WaitForEnd(milliseconds(30));
        return;
      case 2:  // dribbles
        return Dribble(client);
      case 3:
        return Ask(client, requests_.Noise());
      case 4:  // asks for much, reads nothing and goes
        for (int i = 0; i < 20; ++i) client.Send(requests_.Valid());
        return client.Reset();
      case 5:  // leaves in the midst of an answer
        client.Send(requests_.Valid());
        client.ReadSome(milliseconds(20));
        return requests_.Below(2) == 0 ? client.Reset() : client.Close();
      case 6:
        return Ask(client, requests_.MutatedHttp());
      default:
        return Ask(client, requests_.MutatedBody());
    }
  }

  // Answers that no client may ever get, with what was asked.
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  void Dribble(test::RawClient& client) {
    const std::string request = requests_.Valid();
    for (const char c : request.substr(0, 20 + requests_.Below(300))) {
      if (!client.Send({&c, 1})) return;
      if (requests_.Below(40) == 0) std::this_thread::sleep_for(milliseconds(1));
    }
  }

  void Ask(test::RawClient& client, const std::string& request) {
    client.Send(request);
    std::string answer;
    const milliseconds patience(requests_.Below(8) == 0 ? 150 : 8);
    for (int reads = 0; reads < 20; ++reads) {
      const std::string more = client.ReadSome(patience);
      if (more.empty()) break;
      answer += more;
    }
    const bool http = answer.empty() || answer.starts_with("HTTP/1.1 ");
    const bool fault = answer.starts_with("HTTP/1.1 500");
    if ((!http || fault) && faults_.size() < 5) {
      faults_.push_back(Printable(request) + "\nwas answered with\n" + Printable(answer));
    }
  }

  uint16_t port_;
  HostileRequests requests_;
  std::vector<std::string> faults_;
};

// Keeps connections open that say nothing, or begin and do not go on.
void KeepSilence(uint16_t port, const std::atomic<bool>& over, std::atomic<int>* open) {
  std::vector<test::RawClient> silent;
  silent.reserve(kSilentConnections);
  while (!over && silent.size() < kSilentConnections) {
    silent.emplace_back(port);
    if (silent.back().connected()) ++*open;
  }
  while (!over) std::this_thread::sleep_for(milliseconds(20));
}

// One question of a family after another, as honest clients ask them.
class HealthyClient {
 public:
  explicit HealthyClient(uint16_t port) : port_(port) {}

  void Ask() {
    const ApiFamily family = kFamilies[static_cast<size_t>(asked_) % kFamilies.size()];
    const bool stream = (static_cast<size_t>(asked_) / kFamilies.size()) % 2 == 0;
    const std::string question = fmt::format("Are you healthy in round {}", asked_++);
    const auto start = steady_clock::now();
    test::RawClient client(port_);
    const test::RawAnswer answer =
        client.Ask(PostBody(PathOf(family), QuestionBody(family, question, stream)));
    slowest_ =
        std::max(slowest_, std::chrono::duration<double>(steady_clock::now() - start).count());
    ASSERT_TRUE(answer.complete) << question << ": " << answer.status;
    ASSERT_EQ(answer.status, 200) << answer.body;
    ASSERT_EQ(stream ? StreamedTextOf(family, answer.body) : AnswerTextOf(family, answer.body),
              kHealthyText)
        << PathOf(family) << " " << question << "\n"
        << answer.body;
  }
  int asked() const { return asked_; }
  double slowest() const { return slowest_; }

 private:
  uint16_t port_;
  int asked_ = 0;
  double slowest_ = 0;  // seconds
};

bool WaitForRest(uint16_t port) {
  const auto end = steady_clock::now() + test::kPatience;
  while (steady_clock::now() < end) {
    const std::string metrics = MetricsText(port);
    // The one that asks is open.
    if (RequestsInEngine(metrics) == 0 && MetricOf(metrics, "minke_http_connections") == 1) {
      return true;
    }
    std::this_thread::sleep_for(milliseconds(20));
  }
  return false;
}

// A prompt that needs nine tenths of the memory is taken up: the others have given theirs back.
void ExpectRoomForThePoolsPrompt(uint16_t port) {
  std::string prompt = "healthy";
  for (int word = 0; word < 17'000; ++word) prompt += " x";
  test::RawClient client(port);
  const test::RawAnswer answer =
      client.Ask(PostBody("/v1/completions", QuestionBody(ApiFamily::kCompletions, prompt, false)));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Result<Json> body = ParseJson(answer.body, "the answer");
  ASSERT_TRUE(body.has_value());
  EXPECT_GT(body->Find("usage")->Find("prompt_tokens")->as_int(), 33'000);
}

// Nothing runs, and everything that began has ended.
void ExpectAtRest(uint16_t port) {
  EXPECT_TRUE(WaitForRest(port));
  const std::string metrics = MetricsText(port);
  const auto ended = [&](const std::string& how) {
    return MetricOf(metrics, "minke_requests_ended_total{result=\"" + how + "\"}");
  };
  EXPECT_EQ(ended("finished") + ended("cancelled") + ended("failed"),
            MetricOf(metrics, "minke_requests_submitted_total"));
  EXPECT_EQ(ended("failed"), 0);
  EXPECT_GT(ended("cancelled"), 0) << "no hostile client left an answer";
  EXPECT_GT(MetricOf(metrics, "minke_http_refused_total{reason=\"malformed_or_slow\"}"), 0);
  EXPECT_GT(MetricOf(metrics, "minke_http_refused_total{reason=\"invalid\"}"), 0);
}

// MINKE_HOSTILE_SECONDS: how long; 3 if it is not set. MINKE_HOSTILE_SEED: of what is sent; 1.
TEST(HostileServer, HealthyClientsOfEveryFamilyAreServed) {
  if (!test::AllowOpenFiles(2 * kSilentConnections + 400)) {
    GTEST_SKIP() << "this system forbids the files that both ends of 2,000 connections need";
  }
  const int seconds = NumberFromEnvironment("MINKE_HOSTILE_SECONDS", 3);
  const int seed = NumberFromEnvironment("MINKE_HOSTILE_SEED", 1);
  std::cout << fmt::format("MINKE_HOSTILE_SEED={} for {} s\n", seed, seconds);
  auto started = StartAmongHostiles();
  ASSERT_TRUE(started.has_value()) << started.error().message;
  const uint16_t port = (*started)->port();
  const auto begin = steady_clock::now();
  const auto end = begin + std::chrono::seconds(seconds);
  std::atomic<int> visits = 0;
  std::atomic<int> open = 0;
  std::atomic<bool> over = false;
  std::mutex mutex;
  std::vector<std::string> faults;
  std::vector<std::jthread> threads;
  threads.emplace_back([&] { KeepSilence(port, over, &open); });
  for (int i = 0; i < kHostileThreads; ++i) {
    threads.emplace_back([&, i] {
      HostileVisitor visitor(port, static_cast<uint32_t>(seed * kHostileThreads + i));
      for (; !over; ++visits) visitor.Visit();
      const std::scoped_lock lock(mutex);
      faults.insert(faults.end(), visitor.faults().begin(), visitor.faults().end());
    });
  }
  HealthyClient healthy(port);
  int64_t resident = 0;
  // Longer on a machine too busy to have opened all connections and asked every family by then.
  const auto is_short = [&] {
    const bool enough = open == kSilentConnections && healthy.asked() >= kHealthyQuestionsMin;
    return steady_clock::now() < (enough ? end : end + kMoreTimeMax);
  };
  while (is_short() && !::testing::Test::HasFatalFailure()) {
    healthy.Ask();
    if (resident == 0 && steady_clock::now() > begin + (end - begin) / 4) {
      resident = MemoryBytes("VmRSS");
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  const int64_t growth = MemoryBytes("VmRSS") - resident;
  over = true;
  threads.clear();
  for (const std::string& fault : faults) ADD_FAILURE() << fault;
  EXPECT_EQ(open, kSilentConnections);
  EXPECT_GE(healthy.asked(), kHealthyQuestionsMin) << "not every family was asked";
  EXPECT_LT(healthy.slowest(), kHealthySecondsMax);
  EXPECT_LT(growth, kResidentGrowthMax);
  ExpectAtRest(port);
  ExpectRoomForThePoolsPrompt(port);
  std::cout << fmt::format(
      "{} hostile visits, {} healthy answers, slowest {:.3f} s, RSS {:+} KiB\n", visits.load(),
      healthy.asked(), healthy.slowest(), growth / 1024);
}

}  // namespace
}  // namespace minke::testing
