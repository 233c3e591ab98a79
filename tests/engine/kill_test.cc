// kill -9 of a process that answers with a cache on disk: the next one serves, every answer has the
// cold run's logits, and what was on disk is found. (tests/prefix_cache/kill_test.cc kills the
// store alone, fifty times.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/engine_support.h"
#include "tests/engine/kill_traffic.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr uint64_t kSeed = 20261129;
constexpr int kWorkMsMax = 150;  // after the worker is ready

// What the worker said before it was killed, whole lines only.
std::string RunAndKill(const std::string& disk_dir, int round, int work_ms) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const std::string seed = std::to_string(round);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execl(MINKE_ENGINE_WORKER, MINKE_ENGINE_WORKER, kFullMini.c_str(), disk_dir.c_str(),
            seed.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(pipe[1]);
  std::string text;
  std::array<char, 4096> buffer = {};
  const ssize_t first = ::read(pipe[0], buffer.data(), buffer.size());  // it is ready, or gone
  if (first > 0) text.append(buffer.data(), static_cast<size_t>(first));
  std::this_thread::sleep_for(std::chrono::milliseconds(work_ms));
  ::kill(process, SIGKILL);
  while (true) {
    const ssize_t count = ::read(pipe[0], buffer.data(), buffer.size());
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the worker ended by itself with status " << status;
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return text;
}

TEST(EngineKill, EveryRestartServesTheColdAnswers) {
  const TempDirectory directory;
  const std::string disk_dir = directory.Path("cache");
  std::vector<uint64_t> cold;
  for (int i = 0; i < kTrafficPrompts; ++i) {
    cold.push_back(AskTraffic(*Open(Options(kFullMini)), i).digest);
  }
  std::mt19937_64 random(kSeed);
  std::set<int> on_disk;
  int answers = 0;
  const int rounds = kSanitized ? 3 : 12;
  for (int round = 0; round < rounds; ++round) {
    const int work_ms = static_cast<int>(random() % kWorkMsMax) * (kSanitized ? 10 : 1);
    std::istringstream lines(RunAndKill(disk_dir, round, work_ms));
    std::string mark;
    while (lines >> mark) {
      int index = 0;
      if (mark == "R") continue;
      lines >> index;
      ASSERT_LT(index, kTrafficPrompts);
      if (mark == "F") on_disk.insert(index);
      if (mark != "A") continue;
      uint64_t digest = 0;
      lines >> digest;
      EXPECT_EQ(digest, cold[static_cast<size_t>(index)]) << "round " << round << " seed " << kSeed;
      ++answers;
    }
  }
  // A test in which nothing happened would prove nothing.
  EXPECT_GT(answers, 0);
  EXPECT_GT(on_disk.size(), 0u);
  const auto engine = Open(TrafficOptions(kFullMini, disk_dir));
  for (const int index : on_disk) {
    const TrafficAnswer answer = AskTraffic(*engine, index);
    EXPECT_EQ(answer.digest, cold[static_cast<size_t>(index)]);
    EXPECT_EQ(answer.cache.computed_tokens, 1) << "prompt " << index << " was on disk";
  }
  EXPECT_EQ(engine->cache_status().disk_warning, "");
}

}  // namespace
}  // namespace minke::testing
