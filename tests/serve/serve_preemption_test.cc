// Answers that gave their memory back and came again, over sockets and with real arithmetic. A
// program of its own: two answers of thousands of tokens take their time.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/serve/serve_support.h"
#include "tests/serve/whole_server.h"

namespace minke::testing {
namespace {

// ram_bytes: of the cache and of what runs; 0: the default.
std::unique_ptr<WholeServer> StartWithMemory(int64_t ram_bytes) {
  WholeServerOptions options;
  options.model_dir = std::string(MINKE_GOLDEN_DIR) + "/chat";
  options.engine.threads = 1;
  options.engine.cache.ram_bytes = ram_bytes;
  options.server.keep_alive_seconds = 2;  // a client hears something while it waits
  auto server = WholeServer::Start(std::move(options));
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return server.has_value() ? std::move(*server) : nullptr;
}

// Eight at once with memory for two that become long. Both ask the same, as other users: their
// caches are apart, their answers are one.
TEST(Serve, AnswersDoNotDependOnBeingPreempted) {
  constexpr int kTokens = 4400;  // beyond the 4,096 that are set aside for a beginning
  constexpr int64_t kRamBytes = 70 * 105 * 128;
  const auto body_of = [](int index) {
    const bool is_long = index % 4 == 0;
    return fmt::format(
        R"({{"model":"deepseek-flash","prompt":"{} keeper of the light","user":"u{}",)"
        R"("max_tokens":{},"temperature":0,"logprobs":0}})",
        is_long ? "A" : "Another", index, is_long ? kTokens : 8 + index);
  };
  std::vector<std::string> bodies;
  for (int i = 0; i < 8; ++i) bodies.push_back(body_of(i));
  std::vector<Completion> alone;
  for (size_t i = 0; i < 4; ++i) {
    const auto server = StartWithMemory(0);
    ASSERT_NE(server, nullptr);
    alone.push_back(AskCompletion(server->port(), bodies[i]));
  }
  ASSERT_EQ(alone[0].answer_tokens, kTokens) << "the model ended it; ask something else";
  const auto server = StartWithMemory(kRamBytes);
  ASSERT_NE(server, nullptr);
  std::vector<Completion> answers(bodies.size());
  std::vector<std::jthread> clients;
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] { answers[i] = AskCompletion(server->port(), bodies[i]); });
  }
  clients.clear();
  const std::string metrics = MetricsText(server->port());
  EXPECT_GT(MetricOf(metrics, "minke_preemptions_total"), 0) << metrics;
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(answers[i].choices, alone[i].choices) << i;
  EXPECT_EQ(answers[4].choices, alone[0].choices);
}

}  // namespace
}  // namespace minke::testing
