// A client that goes away is billed for what was done until then, and nothing else: in the log, in
// the ledger and in the metrics.
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/service_support.h"
#include "tests/serve/serve_support.h"
#include "tests/serve/whole_server.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int32_t kSaidToken = 5;
constexpr double kMissPrice = 0.5;  // of a token, all day
constexpr double kHitPrice = 0.25;
constexpr double kOutputPrice = 1.0;

// A server whose model says one token for ever, a step at a time.
class GatedServer {
 public:
  explicit GatedServer(int64_t running_max) {
    disk_.Write("prices.json",
                fmt::format(R"({{"currency":"USD","off_peak":{{"input_hit":{},"input_miss":{},)"
                            R"("output":{}}}}})",
                            kHitPrice * 1e6, kMissPrice * 1e6, kOutputPrice * 1e6));
    WholeServerOptions options;
    options.model_dir = kChatModel;
    options.engine.threads = 1;
    options.engine.forward = [model = gate_.Model()](std::span<const ForwardSequence> sequences) {
      // The server may hear of a client's going some steps later: they must not be many.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const Status status = model(sequences);
      for (const ForwardSequence& sequence : sequences) {
        if (!sequence.logits.empty()) sequence.logits[kSaidToken] = 1e9F;
      }
      return status;
    };
    options.service.running_max = running_max;
    options.service.step_rows_max = 64;
    options.server.ledger_file = disk_.Path("ledger.db");
    options.server.price_file = disk_.Path("prices.json");
    options.server.log = [this](std::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      lines_.emplace_back(line);
    };
    auto server = WholeServer::Start(std::move(options));
    EXPECT_TRUE(server.has_value()) << server.error().message;
    if (server.has_value()) server_ = std::move(*server);
  }
  ~GatedServer() { gate_.Open(); }
  GatedServer(const GatedServer&) = delete;
  GatedServer& operator=(const GatedServer&) = delete;

  Gate& gate() { return gate_; }
  uint16_t port() const { return server_->port(); }

  // `words`: of the prompt. Returns the connection.
  std::unique_ptr<test::RawClient> Begin(int words, int max_tokens = 1000) {
    std::string text = "go on";
    for (int i = 0; i < words; ++i) text += fmt::format(" w{}", i);
    auto client = std::make_unique<test::RawClient>(port());
    EXPECT_TRUE(client->Send(PostTo(
        "/v1/chat/completions",
        fmt::format(R"({{"model":"deepseek-flash","stream":true,"temperature":0,"max_tokens":{},)"
                    R"("thinking":{{"type":"disabled"}},"messages":[{{"role":"user",)"
                    R"("content":"{}"}}]}})",
                    max_tokens, text))));
    return client;
  }
  void WaitForMetric(const char* name, int64_t value) const {
    for (int i = 0; i < 3000 && MetricOf(MetricsText(port()), name) < value; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_GE(MetricOf(MetricsText(port()), name), value) << name;
  }
  // The client goes, the server sees it, and the work that was under way comes to its end.
  void GoAndOpen(std::unique_ptr<test::RawClient> client) {
    const int64_t before = MetricOf(MetricsText(port()), kGone);
    client.reset();
    WaitForMetric(kGone, before + 1);
    gate_.Open();
  }
  // The `count`th answer's line of the log.
  Json AnswerLine(size_t count) const {
    for (int i = 0; i < 3000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      const std::lock_guard<std::mutex> lock(mutex_);
      size_t seen = 0;
      for (const std::string& line : lines_) {
        if (line.find(R"("event":"answer")") == std::string::npos || ++seen < count) continue;
        const Result<Json> json = ParseJson(line, "line");
        return json.has_value() ? *json : Json();
      }
    }
    ADD_FAILURE() << "no line of the answer";
    return {};
  }
  Json UsageRows() const {
    test::RawClient client(port());
    const test::RawAnswer answer = client.Ask("GET /v1/usage HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const Result<Json> json = ParseJson(answer.body, "usage");
    return json.has_value() ? *json->Find("data") : Json(JsonArray());
  }

 private:
  static constexpr const char* kGone = "minke_http_disconnects_total";

  Gate gate_;
  const TempDirectory disk_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::unique_ptr<WholeServer> server_;
};

int64_t Count(const Json& json, std::string_view name) {
  const Json* member = json.Find(name);
  EXPECT_TRUE(member != nullptr && member->is_integer()) << name;
  return member != nullptr && member->is_integer() ? member->as_int() : -1;
}

// The line and the only row of the ledger say the same, and the metrics too.
void ExpectBilled(const GatedServer& server, const Json& line) {
  const int64_t prompt = Count(line, "prompt_tokens");
  const int64_t hit = Count(line, "cached_tokens");
  const int64_t written = Count(line, "answer_tokens");
  const double cost = static_cast<double>(hit) * kHitPrice +
                      static_cast<double>(prompt - hit) * kMissPrice +
                      static_cast<double>(written) * kOutputPrice;
  EXPECT_EQ(line.Find("outcome")->as_string(), "cancelled");
  EXPECT_DOUBLE_EQ(line.Find("cost")->as_double(), cost);
  const Json rows = server.UsageRows();
  ASSERT_EQ(rows.as_array().size(), 1U);
  const Json& row = rows.as_array()[0];
  EXPECT_EQ(Count(row, "requests"), 1);
  EXPECT_EQ(Count(row, "prompt_cache_hit_tokens"), hit);
  EXPECT_EQ(Count(row, "prompt_cache_miss_tokens"), prompt - hit);
  EXPECT_EQ(Count(row, "completion_tokens"), written);
  EXPECT_DOUBLE_EQ(row.Find("cost")->as_double(), cost);
  server.WaitForMetric("minke_requests_ended_total{result=\"cancelled\"}", 1);
  const std::string metrics = MetricsText(server.port());
  EXPECT_EQ(MetricOf(metrics, "minke_prompt_tokens_total"), prompt);
  EXPECT_EQ(MetricOf(metrics, "minke_computed_tokens_total"), prompt - hit);
  EXPECT_EQ(MetricOf(metrics, "minke_answer_tokens_total"), written);
  EXPECT_EQ(MetricOf(metrics, "minke_request_answer_tokens_sum"), written);
  EXPECT_NEAR(static_cast<double>(MetricOf(metrics, "minke_cost_total{currency=\"USD\"}")), cost,
              1);
}

TEST(CancelledAnswers, AreBilledForWhatWasWritten) {
  GatedServer server(4);
  auto client = server.Begin(20);
  std::string seen;
  const auto tokens_seen = [&seen] {
    int64_t count = 0;
    for (size_t at = 0; (at = seen.find("\"finish_reason\":null", at)) != std::string::npos; ++at) {
      ++count;
    }
    return count;
  };
  while (tokens_seen() < 6) {  // the first of them opens the answer and has no token
    server.gate().LetOnePass();
    seen += client->ReadSome(std::chrono::milliseconds(20));
  }
  server.gate().WaitForStep();
  server.GoAndOpen(std::move(client));
  const Json line = server.AnswerLine(1);
  EXPECT_GT(Count(line, "prompt_tokens"), 20);
  EXPECT_GE(Count(line, "answer_tokens"), 5);
  EXPECT_LT(Count(line, "answer_tokens"), 1000);
  EXPECT_GE(line.Find("first_token_seconds")->as_double(), 0);
  ExpectBilled(server, line);
}

TEST(CancelledAnswers, AreBilledForWhatWasReadOfThePrompt) {
  GatedServer server(4);
  auto client = server.Begin(1500);
  while (server.gate().rows_passed() < 192) server.gate().LetOnePass();
  server.gate().WaitForStep();
  server.GoAndOpen(std::move(client));
  const Json line = server.AnswerLine(1);
  EXPECT_GE(Count(line, "prompt_tokens"), 192);
  EXPECT_LT(Count(line, "prompt_tokens"), 1500);
  EXPECT_EQ(Count(line, "answer_tokens"), 0);
  EXPECT_LT(line.Find("first_token_seconds")->as_double(), 0);
  ExpectBilled(server, line);
}

TEST(CancelledAnswers, CostNothingInTheQueue) {
  GatedServer server(1);
  auto first = server.Begin(3, 40);
  server.gate().WaitForStep();
  auto second = server.Begin(500);
  server.WaitForMetric("minke_requests{state=\"queued\"}", 2);  // as of the last step
  server.GoAndOpen(std::move(second));
  bool found = false;
  for (const size_t index : {size_t{1}, size_t{2}}) {
    const Json line = server.AnswerLine(index);
    if (line.Find("outcome")->as_string() != "cancelled") continue;
    found = true;
    EXPECT_EQ(Count(line, "prompt_tokens"), 0);
    EXPECT_EQ(Count(line, "answer_tokens"), 0);
    EXPECT_EQ(line.Find("cost")->as_double(), 0);
  }
  EXPECT_TRUE(found);
  const Json rows = server.UsageRows();
  ASSERT_EQ(rows.as_array().size(), 1U);
  EXPECT_EQ(Count(rows.as_array()[0], "requests"), 1);  // the other one
  EXPECT_EQ(Count(rows.as_array()[0], "completion_tokens"), 40);
}

}  // namespace
}  // namespace minke::testing
