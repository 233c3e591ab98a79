// What a prefix cache of some size would have saved in a trace, with the policies that the engine
// evicts by (docs/simulator.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/result.h"
#include "simulator/trace.h"

namespace minke {

inline constexpr int64_t kUnlimitedBlocks = INT64_MAX;

// Classes of the time between two uses of a block, by the class's upper end.
struct ReuseGap {
  const char* name;
  int64_t below_seconds;
};
inline constexpr std::array<ReuseGap, 6> kReuseGaps = {{
    {"<10s", 10},
    {"10-60s", 60},
    {"1-5min", 300},
    {"5-30min", 1800},
    {"30-60min", 3600},
    {">=1h", INT64_MAX},
}};

// Uses of blocks that had been used before, that long ago.
struct ReuseCount {
  int64_t hit_blocks = 0;
  int64_t hit_tokens = 0;
  int64_t recomputed_blocks = 0;  // had been evicted, or stood behind one that had been
  int64_t recomputed_tokens = 0;
};

// hit + recomputed + new + loose tokens are the trace's input tokens.
struct SimulationResult {
  std::string policy;
  int64_t capacity_blocks = kUnlimitedBlocks;
  int64_t block_uses = 0;
  int64_t input_tokens = 0;
  std::array<ReuseCount, kReuseGaps.size()> gaps;
  ReuseCount reused;       // all gaps together
  int64_t new_blocks = 0;  // used for the first time
  int64_t new_tokens = 0;
  int64_t loose_tokens = 0;  // at the end of an input, filling no block of the trace
  int64_t evicted_blocks = 0;
  int64_t refused_blocks = 0;       // not kept, because everything in the cache was pinned
  int64_t peak_blocks = 0;          // in the cache at one time
  int64_t computed_tokens_p50 = 0;  // of a request
  int64_t computed_tokens_p90 = 0;

  double BlockHitRate() const;  // 0 where there is no block
  double TokenHitRate() const;  // 0 where there is no token
  int64_t ComputedTokens() const { return input_tokens - reused.hit_tokens; }
};

// Tells how many requests are done.
using SimulationProgress = std::function<void(int64_t done, int64_t total)>;

// REQUIRES capacity_blocks >= 1. An unknown policy is an error. `progress` may be empty.
Result<SimulationResult> Simulate(const Trace& trace, const std::string& policy,
                                  int64_t capacity_blocks, const SimulationProgress& progress);

// A part of a whole, from 0 to 1; 0 of an empty whole.
inline double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// The value below which `share` (0 to 1) of the values lie, by nearest rank; 0 if there are none.
int64_t Percentile(std::vector<int64_t> values, double share);

}  // namespace minke
