// The hit rates that were measured elsewhere on two published traces (serving.md 7.6). The files
// are not part of the project: the tests run where MINKE_TRACES names their folder or where it
// stands beside the source tree, and say that they were skipped otherwise.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "prefix_cache/eviction.h"
#include "tests/simulator/trace_support.h"

namespace minke::testing {
namespace {

std::string TraceFolder() {
  const char* variable = std::getenv("MINKE_TRACES");
  if (variable != nullptr && variable[0] != '\0') return variable;
  return std::string(MINKE_SOURCE_DIR) + "/../shared/traces";
}

struct Reference {
  int64_t capacity;
  double block_hit_rate;  // as published, to four decimals
};
constexpr std::array<Reference, 7> kConversation = {{{1'000, 0.0445},
                                                     {3'000, 0.0653},
                                                     {10'000, 0.2116},
                                                     {30'000, 0.3257},
                                                     {50'000, 0.3546},
                                                     {100'000, 0.3637},
                                                     {kUnlimitedBlocks, 0.3664}}};
constexpr std::array<Reference, 6> kSynthetic = {{{1'000, 0.0841},
                                                  {3'000, 0.1906},
                                                  {10'000, 0.4239},
                                                  {30'000, 0.6242},
                                                  {50'000, 0.6396},
                                                  {kUnlimitedBlocks, 0.6396}}};
// Where every policy is compared with Belady's.
constexpr int64_t kComparedCapacity = 10'000;
// Half a unit of the last decimal that was published.
constexpr double kTolerance = 0.00005 + 1e-12;

class PublishedTrace : public ::testing::Test {
 protected:
  // Skips the test where the files are not.
  void SetUp() override {
    if (!std::filesystem::exists(TraceFolder())) {
      GTEST_SKIP() << "No folder of traces; set MINKE_TRACES to one to run this test.";
    }
  }

  static Trace Read(const std::vector<std::string>& names) {
    TraceReader reader;
    for (const std::string& name : names) {
      const Status status = reader.AddFile(TraceFolder() + "/" + name, 0);
      EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
    }
    auto trace = reader.Finish();
    EXPECT_TRUE(trace.has_value());
    return std::move(*trace);
  }

  template <size_t N>
  static void Compare(const Trace& trace, const std::array<Reference, N>& references) {
    const int64_t unlimited = Simulated(trace, "lru", kUnlimitedBlocks).reused.hit_blocks;
    int64_t bound = 0;
    for (const Reference& reference : references) {
      const SimulationResult result = Simulated(trace, "lru-flat", reference.capacity);
      EXPECT_NEAR(result.BlockHitRate(), reference.block_hit_rate, kTolerance)
          << reference.capacity;
      // Once Belady's policy hits all that an unlimited cache does, more room changes nothing.
      if (bound < unlimited) {
        bound = Simulated(trace, "belady", reference.capacity).reused.hit_blocks;
      }
      EXPECT_LE(result.reused.hit_blocks, bound) << reference.capacity;
    }
    bound = Simulated(trace, "belady", kComparedCapacity).reused.hit_blocks;
    for (const std::string& policy : EvictionPolicyNames()) {
      const int64_t hits = Simulated(trace, policy, kComparedCapacity).reused.hit_blocks;
      EXPECT_LE(hits, bound) << policy;
      EXPECT_GT(hits, 0) << policy;
      // The study found 0.02 points between LRU over all blocks and over leaves (serving.md 7.5).
      if (policy == "lru") {
        const SimulationResult flat = Simulated(trace, "lru-flat", kComparedCapacity);
        EXPECT_NEAR(static_cast<double>(hits), static_cast<double>(flat.reused.hit_blocks),
                    0.0005 * static_cast<double>(trace.uses.size()));
      }
    }
  }
};

TEST_F(PublishedTrace, MooncakeConversationGivesTheReferenceValues) {
  const Trace trace = Read({"mooncake_conversation.jsonl"});
  EXPECT_EQ(trace.requests.size(), 12'031U);
  EXPECT_EQ(trace.uses.size(), 288'500U);
  EXPECT_EQ(trace.parents.size(), 182'790U);
  Compare(trace, kConversation);
  EXPECT_NEAR(Simulated(trace, "lru-flat", kUnlimitedBlocks).TokenHitRate(), 0.3736, kTolerance);
}

TEST_F(PublishedTrace, MooncakeSyntheticGivesTheReferenceValues) {
  const Trace trace = Read({"mooncake_synthetic.jsonl"});
  EXPECT_EQ(trace.requests.size(), 3'993U);
  Compare(trace, kSynthetic);
}

// Of the 710 sessions that the reference value of 96.34 % is for, a few are here: all of them
// together are near it, and none is far from it.
TEST_F(PublishedTrace, AgentSessionsMostlyHit) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TraceFolder() + "/agent")) {
    if (entry.path().extension() == ".json") {
      names.push_back("agent/" + entry.path().filename().string());
    }
  }
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    const double rate = Simulated(Read({name}), "lru", kUnlimitedBlocks).TokenHitRate();
    EXPECT_GT(rate, 0.90) << name;
    EXPECT_LT(rate, 0.995) << name;
  }
  const SimulationResult all = Simulated(Read(names), "lru", kUnlimitedBlocks);
  EXPECT_NEAR(all.TokenHitRate(), 0.9634, 0.01);
  EXPECT_EQ(all.reused.recomputed_tokens, 0);
}

}  // namespace
}  // namespace minke::testing
