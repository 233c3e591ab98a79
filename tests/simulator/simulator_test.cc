// Simulated hit rates: traces whose results follow from arithmetic, and properties over random
// ones.
#include "simulator/simulator.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "prefix_cache/eviction.h"
#include "tests/simulator/trace_support.h"

namespace minke::testing {
namespace {

// Prompts of one block each, used in turn, round after round.
Trace Rounds(int64_t prompts, int rounds) {
  std::vector<std::vector<int64_t>> requests;
  for (int round = 0; round < rounds; ++round) {
    for (int64_t i = 0; i < prompts; ++i) requests.push_back({i});
  }
  return ReadTrace(MooncakeText(requests));
}

TEST(Simulator, ARoundThatDoesNotFitNeverHitsWithLru) {
  const Trace trace = Rounds(10, 5);
  for (const char* policy : {"lru", "lru-flat", "fifo"}) {
    EXPECT_EQ(Simulated(trace, policy, 9).reused.hit_blocks, 0) << policy;
    EXPECT_EQ(Simulated(trace, policy, 10).reused.hit_blocks, 40) << policy;
    EXPECT_EQ(Simulated(trace, policy, kUnlimitedBlocks).reused.hit_blocks, 40) << policy;
  }
}

// With the future known, and a new block always taken in, all but one of the cached blocks stay:
// of N prompts in a round a cache of C hits C - 1, as the last place is for those that pass. Where
// the round begins moves by one prompt each time, which repeats after N - 1 uses.
TEST(Simulator, BeladyKeepsAllButOneOfARound) {
  const Trace trace = Rounds(10, 91);
  // After the first round, each period of N - 1 = 9 uses has C - 1 = 3 hits.
  EXPECT_EQ(Simulated(trace, "belady", 4).reused.hit_blocks, 900 / 9 * 3);
}

// A conversation grows by a block a turn: each turn hits all of the turn before.
TEST(Simulator, AGrowingConversationHitsItsHistory) {
  std::vector<std::vector<int64_t>> requests;
  std::vector<int64_t> chain;
  constexpr int64_t kTurns = 20;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    chain.push_back(turn);
    requests.push_back(chain);
  }
  const Trace trace = ReadTrace(MooncakeText(requests));
  for (const std::string& policy : EvictionPolicyNames()) {
    const SimulationResult all = Simulated(trace, policy, kTurns);
    EXPECT_EQ(all.reused.hit_blocks, kTurns * (kTurns - 1) / 2) << policy;
    EXPECT_EQ(all.evicted_blocks, 0);
    // A cache of 5 keeps the first five blocks, not the last: the chain is its own, and pinned.
    const SimulationResult few = Simulated(trace, policy, 5);
    EXPECT_EQ(few.reused.hit_blocks, 0 + 1 + 2 + 3 + 4 + 15 * 5) << policy;
    EXPECT_EQ(few.refused_blocks, 15 * 16 / 2) << policy;
    EXPECT_EQ(few.peak_blocks, 5) << policy;
  }
}

TEST(Simulator, TheEndOfAChainGoesFirst) {
  // 1-2-3 is touched, then 4 takes the place of 3: the first two blocks still hit.
  const Trace trace = ReadTrace(MooncakeText({{1, 2, 3}, {4}, {1, 2, 3}}));
  for (const char* policy : {"lru", "lru-flat", "fifo", "lfu", "lru-2"}) {
    EXPECT_EQ(Simulated(trace, policy, 3).reused.hit_blocks, 2) << policy;
  }
}

TEST(Simulator, TokensOfALastBlockAreThoseOfTheInput) {
  const std::string line =
      R"({"timestamp": 0, "input_length": 700, "output_length": 1, "hash_ids": [1, 2]})";
  const std::string longer =
      R"({"timestamp": 0, "input_length": 1300, "output_length": 1, "hash_ids": [1]})";
  const SimulationResult result =
      Simulated(ReadTrace(line + "\n" + line + "\n" + longer), "lru", 5);
  EXPECT_EQ(result.reused.hit_tokens, 700 + 512);
  EXPECT_EQ(result.new_tokens, 700);
  EXPECT_EQ(result.loose_tokens, 1300 - 512);
  EXPECT_DOUBLE_EQ(result.BlockHitRate(), 3.0 / 5.0);
  EXPECT_DOUBLE_EQ(result.TokenHitRate(), 1212.0 / 2700.0);
  EXPECT_EQ(result.ComputedTokens(), 2700 - 1212);
  EXPECT_EQ(result.computed_tokens_p50, 700);
  EXPECT_EQ(result.computed_tokens_p90, 1300 - 512);
}

TEST(Simulator, ReuseIsCountedByItsGap) {
  // Block 1 comes back after each gap; others push block 2 out in between.
  std::string text;
  const std::vector<int64_t> times = {0, 9'999, 19'999, 79'999, 379'999, 2'179'999, 5'779'999};
  for (const int64_t time : times) text += MooncakeLine(time, {1});
  const SimulationResult hits = Simulated(ReadTrace(text), "lru", 1);
  for (size_t i = 0; i < kReuseGaps.size(); ++i) {
    EXPECT_EQ(hits.gaps[i].hit_blocks, 1) << kReuseGaps[i].name;
    EXPECT_EQ(hits.gaps[i].recomputed_blocks, 0) << kReuseGaps[i].name;
  }
  const SimulationResult misses = Simulated(
      ReadTrace(MooncakeLine(0, {1}) + MooncakeLine(1, {2}) + MooncakeLine(60'000, {1})), "lru", 1);
  EXPECT_EQ(misses.gaps[2].recomputed_blocks, 1);
  EXPECT_EQ(misses.gaps[2].recomputed_tokens, 512);
  EXPECT_EQ(misses.new_blocks, 2);
}

std::string SessionRequest(double time, double duration, int64_t id) {
  return fmt::format(R"({{"t": {}, "in": 64, "out": 1, "hash_ids": [{}], "api_time": {}}})", time,
                     id, duration);
}

TEST(Simulator, RunningRequestsArePinned) {
  // Block 1 runs until 10 s. At 5 s there is no room; at 10 s it may go.
  const auto hits = [](double second, double third) {
    const std::string text =
        fmt::format(R"({{"block_size": 64, "requests": [{}, {}, {}]}})", SessionRequest(0, 10, 1),
                    SessionRequest(second, 0.5, 2), SessionRequest(third, 1, 1));
    return Simulated(ReadTrace(text), "lru", 1);
  };
  EXPECT_EQ(hits(5, 12).reused.hit_blocks, 1);
  EXPECT_EQ(hits(5, 12).refused_blocks, 1);
  EXPECT_EQ(hits(10, 12).reused.hit_blocks, 0);
  EXPECT_EQ(hits(10, 12).refused_blocks, 0);
}

TEST(Simulator, UnknownPoliciesAreErrors) {
  const auto result = Simulate(Rounds(1, 1), "best", 1, {});
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message.find("lru-flat"), std::string::npos);
}

TEST(Simulator, ProgressGrowsToTheEnd) {
  std::vector<int64_t> seen;
  ASSERT_TRUE(Simulate(Rounds(1000, 5), "lru", 10, [&](int64_t done, int64_t total) {
                EXPECT_EQ(total, 5000);
                seen.push_back(done);
              }).has_value());
  EXPECT_GE(seen.size(), 4U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(Simulator, PercentilesAreByNearestRank) {
  EXPECT_EQ(Percentile({}, 0.5), 0);
  EXPECT_EQ(Percentile({3}, 0.9), 3);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 0.51), 3);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 1), 4);
}

// ---- properties ----

// Chains of a random tree in which beginnings recur: ids are positions in it.
std::vector<std::vector<int64_t>> RandomRequests() {
  const int count = *rc::gen::inRange(1, 60);
  std::vector<std::vector<int64_t>> requests;
  for (int i = 0; i < count; ++i) {
    requests.push_back(*rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 3)));
    if (requests.back().size() > 12) requests.back().resize(12);
  }
  return requests;
}

int64_t LongestChain(const Trace& trace) {
  int64_t longest = 1;
  for (const TraceRequest& request : trace.requests) {
    longest = std::max(longest, request.block_count);
  }
  return longest;
}

TEST(Simulator, BeladyBoundsEveryPolicyAndAccountsAddUp) {
  EXPECT_TRUE(rc::check("no policy beats Belady, no token is lost", [] {
    const Trace trace = ReadTrace(MooncakeText(RandomRequests()));
    const int64_t capacity = *rc::gen::inRange<int64_t>(1, LongestChain(trace) + 40);
    const SimulationResult bound = Simulated(trace, "belady", capacity);
    const SimulationResult unlimited = Simulated(trace, "lru", kUnlimitedBlocks);
    RC_ASSERT(unlimited.reused.recomputed_blocks == 0);
    for (const std::string& policy : EvictionPolicyNames()) {
      const SimulationResult result = Simulated(trace, policy, capacity);
      RC_ASSERT(result.reused.hit_blocks <= bound.reused.hit_blocks);
      RC_ASSERT(result.reused.hit_blocks <= unlimited.reused.hit_blocks);
      RC_ASSERT(result.peak_blocks <= capacity);
      RC_ASSERT(result.reused.hit_blocks + result.reused.recomputed_blocks + result.new_blocks ==
                result.block_uses);
      RC_ASSERT(result.reused.hit_tokens + result.reused.recomputed_tokens + result.new_tokens +
                    result.loose_tokens ==
                trace.input_tokens);
      RC_ASSERT(result.new_blocks == static_cast<int64_t>(trace.parents.size()));
      const int64_t by_gap =
          std::accumulate(result.gaps.begin(), result.gaps.end(), int64_t{0},
                          [](int64_t sum, const ReuseCount& count) {
                            return sum + count.hit_tokens + count.recomputed_tokens;
                          });
      RC_ASSERT(by_gap == result.reused.hit_tokens + result.reused.recomputed_tokens);
    }
  }));
}

// A larger cache is never worse with policies that keep what a smaller one keeps.
TEST(Simulator, LruAndBeladyGainFromRoom) {
  EXPECT_TRUE(rc::check("hits grow with the capacity", [] {
    const Trace trace = ReadTrace(MooncakeText(RandomRequests()));
    for (const char* policy : {"lru-flat", "belady"}) {
      int64_t hits = 0;
      for (int64_t capacity = 1; capacity < LongestChain(trace) + 20; capacity += 3) {
        const SimulationResult result = Simulated(trace, policy, capacity);
        RC_ASSERT(result.reused.hit_blocks >= hits);
        hits = result.reused.hit_blocks;
      }
    }
  }));
}

}  // namespace
}  // namespace minke::testing
