// What `minke simulate` says: tables for a person, JSON for a program, a plot for a document.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "simulator/capacity.h"
#include "simulator/simulator.h"
#include "simulator/trace.h"

namespace minke {

// The trace in numbers.
struct TraceSummary {
  std::string name;  // for headings
  int64_t files = 0;
  int64_t requests = 0;
  int64_t timed_requests = 0;
  int64_t duration_us = 0;  // from the first arrival to the last
  int64_t block_tokens = 0;
  int64_t block_uses = 0;
  int64_t different_blocks = 0;
  int64_t input_tokens = 0;
  int64_t input_tokens_p50 = 0;
  int64_t output_tokens = 0;
};
TraceSummary Summarize(const Trace& trace, const std::string& name, int64_t files);

struct SimulationRun {
  SimulationResult result;
  Capacity capacity;
  int64_t bytes_per_token = 0;
};

struct SimulationReport {
  TraceSummary trace;
  SimulationResult unlimited;  // of a cache that never evicts: the bound of every policy
  std::vector<SimulationRun> runs;
  double prefill_tokens_per_second = 0;  // 0: costs are told in tokens alone

  // Ends with a newline.
  std::string ToText() const;
  // Keys: trace{...}, runs[] (policy, capacity, block_hit_rate, token_hit_rate, ..., gaps[]). The
  // members of a single run stand at the top, too.
  Json ToJson() const;
  // Hit rate by blocks over the capacity, a line for each policy (and size of a token, where there
  // are several): an SVG file for light and dark pages. REQUIRES a run.
  std::string ToSvg() const;

 private:
  // Whether one size of a token applies to all runs.
  bool OneTokenSize() const;
  std::string GapText(const SimulationRun& run) const;
  Json RunJson(const SimulationRun& run) const;
};

}  // namespace minke
