// Traces for tests, written as text in the two published formats.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "simulator/simulator.h"
#include "simulator/trace.h"

namespace minke::testing {

// A request of full blocks.
inline std::string MooncakeLine(int64_t milliseconds, const std::vector<int64_t>& ids) {
  return fmt::format(
      "{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 7, "
      "\"hash_ids\": [{}]}}\n",
      milliseconds, static_cast<int64_t>(ids.size()) * kMooncakeBlockTokens, fmt::join(ids, ", "));
}

// Requests a second apart.
inline std::string MooncakeText(const std::vector<std::vector<int64_t>>& requests) {
  std::string text;
  int64_t milliseconds = 0;
  for (const auto& ids : requests) {
    text += MooncakeLine(milliseconds, ids);
    milliseconds += 1000;
  }
  return text;
}

inline Trace ReadTrace(std::string_view text) {
  TraceReader reader;
  const Status status = reader.AddText(text, "trace", 0);
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  auto trace = reader.Finish();
  EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
  return std::move(*trace);
}

inline std::string TraceError(std::string_view text) {
  TraceReader reader;
  const Status status = reader.AddText(text, "t.json", 0);
  return status ? "" : status.error().message;
}

inline SimulationResult Simulated(const Trace& trace, const std::string& policy, int64_t capacity) {
  auto result = Simulate(trace, policy, capacity, {});
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return std::move(*result);
}

}  // namespace minke::testing
