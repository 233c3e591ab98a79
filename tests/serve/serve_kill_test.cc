// kill -9 of `minke serve` while clients are served: the next start goes on with every
// conversation from the disk, with the text that it would have had.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/serve/serve_support.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int kConversationsServed = 4;

// `minke serve` on a free port, with a cache on disk.
class ServeProcess {
 public:
  explicit ServeProcess(const TempDirectory& directory) {
    const std::vector<std::string> words = {std::string(MINKE_BINARY_DIR) + "/minke",
                                            "serve",
                                            "--model",
                                            std::string(MINKE_SOURCE_DIR) + "/models/mini",
                                            "--port",
                                            "0",
                                            "--threads",
                                            "1",
                                            "--ledger",
                                            "none",
                                            "--kv-disk",
                                            directory.Path("kv")};
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::array<int, 2> pipe = {};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(pipe[1], STDOUT_FILENO);
      ::setenv("XDG_STATE_HOME", directory.path().c_str(), 1);
      ::setenv("XDG_CACHE_HOME", directory.path().c_str(), 1);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(pipe[1]);
    output_ = pipe[0];
    ReadPort();
  }
  ~ServeProcess() {
    if (process_ > 0) End(SIGKILL);
    ::close(output_);
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  uint16_t port() const { return port_; }
  void Send(int signal) const { ::kill(process_, signal); }
  // Its status, as of waitpid().
  int End(int signal) {
    Send(signal);
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

 private:
  // The first line says where it serves.
  void ReadPort() {
    const std::string mark = "Serving at http://127.0.0.1:";
    std::string text;
    std::array<char, 4096> buffer = {};
    while (text.find('\n') == std::string::npos) {
      const ssize_t count = ::read(output_, buffer.data(), buffer.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    const size_t at = text.find(mark);
    ASSERT_NE(at, std::string::npos) << text;
    port_ = static_cast<uint16_t>(std::stoi(text.substr(at + mark.size())));
  }

  pid_t process_ = -1;
  int output_ = -1;
  uint16_t port_ = 0;
};

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
