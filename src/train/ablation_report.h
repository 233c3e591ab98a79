// Results of the laboratory: one JSON object a line, and the Markdown tables of docs/ablations.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke::train {

inline constexpr uint64_t kResultsBytesMax = uint64_t{64} << 20;

struct AblationRecall {
  int64_t length = 0;  // tokens of the prompts
  int64_t cases = 0;
  int64_t digits = 0;   // cases whose value is right
  int64_t answers = 0;  // cases whose whole answer is right
};

// At the answers' values, with prompts of the longest length (IndexQuality).
struct AblationIndex {
  int64_t layer = 0;
  double top1_recall = 0;
  double mass_recall = 0;
  double pool_recall = 0;       // -1: no pool
  double pool_topk_recall = 0;  // -1: no pool
};

// One row with one seed, looked at in one way.
struct AblationResult {
  std::string table;
  std::string row;
  std::string variant;
  uint64_t seed = 0;
  int64_t trained_tokens = 0;  // those of the trunk included
  double bits_per_byte = 0;
  double cache_bytes_per_token = 0;
  double indexed_keys_per_query = 0;  // at the end of the longest prompt
  std::vector<AblationRecall> recall;
  std::vector<AblationIndex> indexes;
  // What it was made by; lines of older programs do not say.
  std::optional<int64_t> steps;  // of each stage, where the plan's lengths were set aside; else 0
  std::string setup;             // SetupDigest()
  int64_t line = 0;              // of the file that it was read from, from 1 on; 0: of none
};

// What a call asks of a row, to be compared with a result that is there already.
struct AblationRequest {
  std::vector<int64_t> lengths;
  int64_t cases = 0;
  int64_t steps = 0;  // as AblationResult::steps
  std::string setup;
};

std::string ResultLine(const AblationResult& result);  // with its newline
// Errors name `what` and the line: no result, numbers that no evaluation gives, or a row, variant
// and seed that a line before has already.
Result<std::vector<AblationResult>> ParseResults(std::string_view text, std::string_view what);

// An error where `known`, a result of the file `what`, was made by something else than is asked
// for: what differs, both values, and the ways out.
Status CheckRequest(const AblationResult& known, const AblationRequest& asked,
                    std::string_view what);

// A table for each `table` of the results, in order of appearance. Seeds of a row and variant are
// pooled for the recall and its 95 % interval (Wilson); with several, the lowest and highest of
// them stand beside it. Of the indexes the lowest of the seeds is shown.
std::string MarkdownTables(const std::vector<AblationResult>& results);

}  // namespace minke::train
