// kill -9 of a service under load: after every restart each conversation goes on from the disk,
// with the answers that it would have had alone.
#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/engine_support.h"
#include "tests/engine/kill_process.h"
#include "tests/engine/service_support.h"
#include "tests/engine/service_traffic.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr uint64_t kSeed = 20261130;
// A machine that is busy with other things may take its time, so what counts is what was said.
constexpr int kLinesMax = 30;
constexpr int kWorkMsMax = 50;  // after that

struct Heard {
  int answers = 0;
  std::map<int, size_t> on_disk;  // turns of a conversation
};

// Appends what the worker said to the transcripts.
void Listen(const std::string& text, Transcripts& transcripts, Heard& heard) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string mark;
    int conversation = 0;
    words >> mark;
    if (mark == "R") continue;
    words >> conversation;
    ASSERT_LT(conversation, kConversations);
    if (mark == "F") words >> heard.on_disk[conversation];
    if (mark != "T") continue;
    int32_t id = 0;
    while (words >> id) transcripts[static_cast<size_t>(conversation)].push_back(id);
    ++heard.answers;
  }
}

// What the conversation answers without anybody else, in one session.
std::vector<int32_t> AloneTranscript(const Engine& engine, int conversation, size_t turns) {
  const auto session = engine.NewSession();
  std::vector<int32_t> answers;
  for (size_t turn = 0; turn < turns; ++turn) {
    const std::vector<int32_t> prompt = TurnPrompt(conversation, answers, turn);
    const std::vector<int32_t> ids =
        Generate(engine, *session, prompt, Greedy(kTurnAnswerTokens)).ids;
    answers.insert(answers.end(), ids.begin(), ids.end());
  }
  return answers;
}

TEST(ServiceKill, EveryConversationContinuesFromDisk) {
  const TempDirectory directory;
  const std::string disk_dir = directory.Path("cache");
  const std::string path = directory.Path("transcripts");
  std::mt19937_64 random(kSeed);
  Transcripts transcripts(kConversations);
  Heard heard;
  const int rounds = kSanitized ? 3 : 8;
  // How far a worker gets before it is killed depends on the machine.
  for (int round = 0; round < rounds || (heard.on_disk.empty() && round < 4 * rounds); ++round) {
    WriteTranscripts(path, transcripts);
    const int work_ms = static_cast<int>(random() % kWorkMsMax);
    const int lines = 2 + static_cast<int>(random() % kLinesMax);
    Listen(RunAndKill({MINKE_SERVICE_WORKER, kFullMini, disk_dir, path}, work_ms, lines),
           transcripts, heard);
  }
  // A test in which nothing happened would prove nothing.
  EXPECT_GT(heard.answers, 0);
  EXPECT_FALSE(heard.on_disk.empty());
  const auto alone = Open(Options(kFullMini));
  for (int i = 0; i < kConversations; ++i) {
    const std::vector<int32_t>& answers = transcripts[static_cast<size_t>(i)];
    ASSERT_EQ(answers.size() % kTurnAnswerTokens, 0u);
    EXPECT_EQ(answers, AloneTranscript(*alone, i, answers.size() / kTurnAnswerTokens))
        << "conversation " << i << " seed " << kSeed;
  }
  EngineOptions options = Options(kFullMini);
  options.cache.disk_dir = disk_dir;
  const auto service = StartService(options);
  for (const auto& [conversation, turns] : heard.on_disk) {
    const std::vector<int32_t> prompt =
        TurnPrompt(conversation, transcripts[static_cast<size_t>(conversation)], turns);
    Answer answer;
    Submit(*service, TurnRequest(prompt), answer);
    const ServiceResult result = answer.Value();
    // The last drawn token was never read. It may have been asked further before it was killed.
    EXPECT_LE(result.cache.computed_tokens,
              static_cast<int64_t>(TurnQuestion(conversation, turns).size()) + 1)
        << "conversation " << conversation << ", " << turns << " turns on disk";
    EXPECT_EQ(result.cache.replayed_tokens, 0);
  }
  ASSERT_TRUE(service->WaitUntilIdle(60));
  EXPECT_EQ(service->status().cache.disk_warning, "");
}

}  // namespace
}  // namespace minke::testing
