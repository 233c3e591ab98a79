// Whoever else is served, an answer that comes over a socket has the tokens, and the log
// probabilities, that it has alone.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server.h"
#include "tests/serve/serve_support.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

const std::string kServedModel = std::string(MINKE_GOLDEN_DIR) + "/chat";

std::unique_ptr<Server> StartWholeServer(const ServiceOptions& options) {
  EngineOptions engine_options;
  engine_options.model_dir = kServedModel;
  engine_options.threads = 1;
  Result<std::unique_ptr<Engine>> engine = Engine::Open(engine_options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  if (!engine.has_value()) return nullptr;
  Result<std::unique_ptr<Service>> service = Service::Start(std::move(engine).value(), options);
  EXPECT_TRUE(service.has_value()) << service.error().message;
  if (!service.has_value()) return nullptr;
  ServerOptions server_options;
  server_options.http.port = 0;
  server_options.keep_alive_seconds = 2;  // a client hears something while it waits
  Result<std::unique_ptr<Server>> server =
      Server::Start(server_options, std::move(service).value());
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return server.has_value() ? std::move(server).value() : nullptr;
}

// Greedy and drawn, short and long, some with a common beginning.
std::string MixedBody(int index) {
  std::string prompt = index % 2 == 0 ? "The keeper of the lighthouse wrote: " : "";
  for (int word = 0; word < 4 + index * 7 % 60; ++word) {
    prompt += fmt::format("word{} ", index * 31 + word);
  }
  return fmt::format(R"({{"model":"deepseek-flash","prompt":"{}","max_tokens":{},"temperature":{},)"
                     R"("seed":{},"logprobs":2}})",
                     prompt, 6 + index % 7, index % 3 == 0 ? 0.0 : 0.9, index);
}

// All at once, each on a connection of its own.
std::vector<Completion> AskTogether(uint16_t port, const std::vector<std::string>& bodies) {
  std::vector<Completion> answers(bodies.size());
  std::vector<std::jthread> clients;
  for (size_t i = 0; i < bodies.size(); ++i) {
    clients.emplace_back([&, i] { answers[i] = AskCompletion(port, bodies[i]); });
  }
  clients.clear();
  return answers;
}

// Each by a server that has served nobody else.
std::vector<Completion> AskAlone(const std::vector<std::string>& bodies) {
  std::vector<Completion> answers;
  for (const std::string& body : bodies) {
    const auto server = StartWholeServer({});
    if (server == nullptr) return {};
    answers.push_back(AskCompletion(PortOf(server->url()), body));
  }
  return answers;
}

void ExpectSameChoices(const std::vector<Completion>& answers,
                       const std::vector<Completion>& expected) {
  ASSERT_LE(answers.size(), expected.size());
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_GT(answers[i].answer_tokens, 0) << i;
    EXPECT_EQ(answers[i].answer_tokens, expected[i].answer_tokens) << i;
    EXPECT_EQ(answers[i].choices, expected[i].choices) << i;
  }
}

TEST(Serve, AnswersDoNotDependOnWhoElseIsServed) {
  const int count = kSanitized ? 8 : 32;
  std::vector<std::string> bodies;
  for (int i = 0; i < count; ++i) bodies.push_back(MixedBody(i));
  const std::vector<Completion> expected = AskAlone(bodies);
  ASSERT_EQ(expected.size(), bodies.size());
  EXPECT_NE(expected[0].choices, expected[1].choices);
  for (const int together : {1, 8, 32}) {
    if (together > count) continue;
    SCOPED_TRACE(together);
    ServiceOptions options;
    options.step_rows_max = 48;  // prompts are read in many parts, among the others' tokens
    const auto server = StartWholeServer(options);
    ASSERT_NE(server, nullptr);
    ExpectSameChoices(
        AskTogether(PortOf(server->url()), {bodies.begin(), bodies.begin() + together}), expected);
    EXPECT_TRUE(server->Drain(10));
  }
}

}  // namespace
}  // namespace minke::testing
