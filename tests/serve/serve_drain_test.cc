// Signals to `minke serve` while it answers.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/serve/family_answers.h"
#include "tests/serve/serve_process.h"
#include "tests/serve/serve_support.h"
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

}  // namespace
}  // namespace minke::testing
