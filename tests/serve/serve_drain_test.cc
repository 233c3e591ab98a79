// How the server ends while it answers: on signals, and in time.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/service_support.h"
#include "tests/serve/family_answers.h"
#include "tests/serve/serve_process.h"
#include "tests/serve/serve_support.h"
#include "tests/serve/whole_server.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

// Takes its time: the model's weights are random, and after this prompt it goes on and on.
std::string LongStory(int tokens, bool stream) {
  std::string prompt;
  for (int i = 0; i < 60; ++i) prompt += "and so on ";
  return fmt::format(R"({{"model":"deepseek-flash","prompt":"{}","max_tokens":{},"temperature":0,)"
                     R"("stream":{}}})",
                     prompt, tokens, stream);
}

// A client that has the first words of such a stream.
test::RawClient BeginStory(uint16_t port, int tokens) {
  test::RawClient client(port);
  EXPECT_TRUE(client.Send(CompletionRequest(LongStory(tokens, true))));
  EXPECT_NE(client.ReadUntil("data: ").find("HTTP/1.1 200"), std::string::npos);
  return client;
}

int HealthOf(uint16_t port) {
  return test::RawClient(port).Ask("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status;
}

bool WaitUntilDraining(uint16_t port) {
  const auto end = std::chrono::steady_clock::now() + test::kPatience;
  while (HealthOf(port) != 503) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

TEST(ServeProgram, WhileItDrainsStreamsEndWholeAndNewRequestsAreTurnedAway) {
  constexpr int kTokens = 1500;
  const TempDirectory directory;
  {
    ServeProcess process(directory, {"--drain-seconds", "300"});
    test::RawClient story = BeginStory(process.port(), kTokens);
    process.Send(SIGTERM);
    ASSERT_TRUE(WaitUntilDraining(process.port()));
    for (const ApiFamily family : kFamilies) {
      const std::string body = QuestionBody(family, "anybody there", false);
      const test::RawAnswer refused =
          test::RawClient(process.port()).Ask(PostTo(PathOf(family), body));
      EXPECT_EQ(refused.status, 503) << refused.body;
      EXPECT_EQ(refused.headers.count("retry-after"), 1U);
      EXPECT_NE(refused.body.find("overloaded"), std::string::npos) << refused.body;
    }
    const std::string rest = story.ReadUntil("[DONE]");
    EXPECT_NE(rest.find("[DONE]"), std::string::npos);
    EXPECT_NE(rest.find(fmt::format("\"completion_tokens\":{}", kTokens)), std::string::npos);
    const int status = process.Wait();
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  ServeProcess next(directory);
  const Completion again = AskCompletion(next.port(), LongStory(4, false));
  EXPECT_GT(again.cached_tokens, again.prompt_tokens / 2);
}

TEST(ServeProgram, TheSecondSignalEndsItAtOnce) {
  const TempDirectory directory;
  ServeProcess process(directory, {"--drain-seconds", "300"});
  test::RawClient story = BeginStory(process.port(), 200'000);
  process.Send(SIGTERM);
  ASSERT_TRUE(WaitUntilDraining(process.port()));
  const int status = process.End(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
  EXPECT_EQ(story.ReadToEnd().find("[DONE]"), std::string::npos);
}

// A server whose model says one token for ever, one in so long.
std::unique_ptr<WholeServer> StartTalker(std::chrono::milliseconds pause = {}) {
  WholeServerOptions options;
  options.model_dir = kChatModel;
  options.engine.threads = 1;
  options.engine.forward = [pause](std::span<const ForwardSequence> sequences) {
    std::this_thread::sleep_for(pause);
    for (const ForwardSequence& sequence : sequences) {
      if (!sequence.logits.empty()) sequence.logits[5] = 1e9F;
    }
    return Status();
  };
  auto server = WholeServer::Start(std::move(options));
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return server.has_value() ? std::move(*server) : nullptr;
}

// A client that has the first words and hardly room for more.
test::RawClient AskTalker(uint16_t port, int tokens) {
  test::RawClient client(port, "127.0.0.1", 4096);
  EXPECT_TRUE(client.Send(CompletionRequest(
      fmt::format(R"({{"model":"deepseek-flash","prompt":"go on","max_tokens":{},"temperature":0,)"
                  R"("stream":true}})",
                  tokens))));
  EXPECT_NE(client.ReadUntil("data: ").find("HTTP/1.1 200"), std::string::npos);
  return client;
}

TEST(Drain, AClientThatIsBehindGetsItsAnswerWhole) {
  std::unique_ptr<WholeServer> server = StartTalker();
  ASSERT_NE(server, nullptr);
  test::RawClient client = AskTalker(server->port(), 40'000);
  ASSERT_TRUE(server->service().WaitUntilIdle(60));  // all is made, and megabytes are not sent
  bool whole = false;
  std::thread ending([&] {
    whole = server->server().Drain(60);
    server.reset();
  });
  const std::string rest = client.ReadUntil("[DONE]");
  ending.join();
  EXPECT_TRUE(whole);
  EXPECT_NE(rest.find("[DONE]"), std::string::npos);
}

TEST(Drain, AnAnswerThatTakesTooLongEndsWithAnError) {
  const std::unique_ptr<WholeServer> server = StartTalker(std::chrono::milliseconds(5));
  ASSERT_NE(server, nullptr);
  test::RawClient client = AskTalker(server->port(), 40'000);
  const std::string end_of_stream = "\r\n0\r\n\r\n";
  std::string rest;
  std::thread reader([&] { rest = client.ReadUntil(end_of_stream); });
  EXPECT_FALSE(server->server().Drain(0.1));
  reader.join();
  EXPECT_NE(rest.find("shutting down"), std::string::npos);
  EXPECT_NE(rest.find(end_of_stream), std::string::npos);
}

}  // namespace
}  // namespace minke::testing
