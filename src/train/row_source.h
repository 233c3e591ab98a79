// Where the rows of a step come from: a function of the seed, the step and the row's place in it,
// without state, so that a run that continues sees the rows that it would have seen.
#pragma once

#include <cstdint>

#include "train/row.h"
#include "train/stage_config.h"

namespace minke::train {

struct RowRequest {
  uint64_t seed = 0;
  int64_t step = 0;   // of the run
  int64_t index = 0;  // within the step
  RowKind kind = RowKind::kPlain;
  int64_t length = 0;                  // tokens
  const StageConfig* stage = nullptr;  // weights, facts, questions
};

class RowSource {
 public:
  virtual ~RowSource() = default;
  // Exactly request.length tokens. Called by several threads at once.
  virtual Row Make(const RowRequest& request) const = 0;
};

// A uniform number in [0, 1) for one decision about one row: the same for the same arguments.
double UniformOf(uint64_t seed, int64_t step, int64_t index, uint64_t purpose);

// The shape of a step's rows and the kind of each of them. Kinds are drawn in layers, so that every
// step comes as close to the shares as its number of rows allows.
struct StepPlan {
  RowShape shape;
  std::vector<RowKind> kinds;  // [shape.count]
};
StepPlan PlanStep(const StageConfig& stage, uint64_t seed, int64_t step);

// Query positions from which the decoder of a row sees a truncated window, as after a replay
// prefill: `window` tokens before an answer begins, or before any place of plain text; -1 in rows
// that stay exact.
int64_t ReplayStart(const StageConfig& stage, const Row& row, int64_t window, uint64_t seed,
                    int64_t step, int64_t index);

inline constexpr int64_t kDraftsPerRow = 16;
// Positions of a row behind which draft stages propose `block` tokens, spread over the row and
// ascending; fewer than kDraftsPerRow where the row has no room for them.
std::vector<int64_t> DraftPlaces(int64_t length, int64_t block, uint64_t seed, int64_t step,
                                 int64_t index);

}  // namespace minke::train
