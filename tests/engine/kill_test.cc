// kill -9 of a process that answers with a cache on disk: the next one serves, every answer has the
// cold run's logits, and what was on disk is found. (tests/prefix_cache/kill_test.cc kills the
// store alone, fifty times.)
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/engine/engine_support.h"
#include "tests/engine/kill_process.h"
#include "tests/engine/kill_traffic.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr uint64_t kSeed = 20261129;
constexpr int kWorkMsMax = 150;  // after the worker is ready

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
    std::istringstream lines(
        RunAndKill({MINKE_ENGINE_WORKER, kFullMini, disk_dir, std::to_string(round)}, work_ms));
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
