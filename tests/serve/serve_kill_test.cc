// kill -9 of `minke serve` while clients are served: the next start goes on with every
// conversation from the disk, with the text that it would have had.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/serve/serve_process.h"
#include "tests/serve/serve_support.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int kConversationsServed = 4;

std::string ConversationBegin(int conversation) {
  std::string prompt;
  for (int word = 0; word < 160; ++word) prompt += fmt::format("w{} ", conversation * 200 + word);
  return prompt;
}

std::string ConversationBody(const std::string& prompt, int tokens) {
  return fmt::format(
      R"({{"model":"deepseek-flash","prompt":"{}","max_tokens":{},"temperature":0,"logprobs":1}})",
      prompt, tokens);
}

// The second turn of a conversation: its beginning, and a question.
std::string SecondTurn(int conversation) {
  return ConversationBody(ConversationBegin(conversation) + "And then? ", 8);
}

void ServeConversations(uint16_t port) {
  for (int i = 0; i < kConversationsServed; ++i) {
    EXPECT_GT(AskCompletion(port, ConversationBody(ConversationBegin(i), 4)).answer_tokens, 0);
  }
}

std::vector<Completion> SecondTurns(uint16_t port) {
  std::vector<Completion> turns;
  for (int i = 0; i < kConversationsServed; ++i)
    turns.push_back(AskCompletion(port, SecondTurn(i)));
  return turns;
}

void ExpectContinued(const std::vector<Completion>& turns, const std::vector<Completion>& cold) {
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ(turns[i].choices, cold[i].choices) << "conversation " << i;
    EXPECT_EQ(cold[i].cached_tokens, 0) << "conversation " << i;
    EXPECT_GT(turns[i].cached_tokens, turns[i].prompt_tokens / 2) << "conversation " << i;
  }
}

// What a server that knows nothing answers.
std::vector<Completion> ColdSecondTurns() {
  const TempDirectory directory;
  ServeProcess process(directory);
  return SecondTurns(process.port());
}

TEST(ServeProgram, KilledUnderLoadItContinuesEveryConversation) {
  const std::vector<Completion> cold = ColdSecondTurns();
  const TempDirectory directory;
  {
    ServeProcess process(directory);
    ServeConversations(process.port());
    // Answers have ended; the cache writes behind them, and is killed amid the next ones.
    std::this_thread::sleep_for(std::chrono::seconds(2));
    std::vector<test::RawClient> load;
    for (int i = 0; i < 8; ++i) {
      load.emplace_back(process.port());
      const std::string body = ConversationBody(ConversationBegin(20 + i), 400);
      ASSERT_TRUE(load.back().Send(CompletionRequest(body)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int status = process.End(SIGKILL);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
  }
  ServeProcess next(directory);
  ExpectContinued(SecondTurns(next.port()), cold);
}

TEST(ServeProgram, DrainsAtTheFirstSignalAndStartsWithEveryConversation) {
  const std::vector<Completion> cold = ColdSecondTurns();
  const TempDirectory directory;
  {
    ServeProcess process(directory);
    ServeConversations(process.port());
    const int status = process.End(SIGTERM);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  ServeProcess next(directory);
  ExpectContinued(SecondTurns(next.port()), cold);
}

}  // namespace
}  // namespace minke::testing
