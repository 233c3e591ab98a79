// A process that is killed at any moment loses nothing that it called published.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

#include "tests/prefix_cache/kill_harness.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

TEST(Kill, FiftyKillsLoseNothingPublished) {
  constexpr int kRounds = 50;
  constexpr uint64_t kSeed = 20261129;
  const testing::TempDirectory directory;
  testing::KillHarness harness(MINKE_STORE_WORKER, directory.Path("cache"), kSeed);
  for (int round = 0; round < kRounds && harness.report().failure.empty(); ++round) {
    harness.Round();
  }
  harness.CheckAll();
  const testing::KillReport& report = harness.report();
  EXPECT_EQ(report.failure, "") << "seed " << kSeed;
  EXPECT_EQ(report.lost, 0);
  EXPECT_EQ(report.retried, 0);
  // A test in which nothing happened would prove nothing.
  EXPECT_GT(report.published, 100);
  std::printf("%lld blocks published, %lld recovered, %lld cut short\n",
              static_cast<long long>(report.published), static_cast<long long>(report.recovered),
              static_cast<long long>(report.damaged));
}

}  // namespace
}  // namespace minke
