#include "train/row_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace minke::train {
namespace {

// What a uniform number decides.
enum Purpose : uint64_t {
  kShape = 1,
  kKindOffset,
  kKindOrder,
  kReplay,
  kReplayPlace,
  kDraftPlace,
};

uint64_t Mixed(uint64_t x) {  // the finaliser of SplitMix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Positions that predict the first token of an answer.
std::vector<int64_t> AnswerStarts(const Row& row) {
  std::vector<int64_t> starts;
  const auto supervised = [&row](size_t at) {
    return row.targets[at] != TargetKind::kOther && row.targets[at] != TargetKind::kText;
  };
  for (size_t at = 1; at < row.targets.size(); ++at) {
    if (supervised(at) && !supervised(at - 1)) starts.push_back(static_cast<int64_t>(at));
  }
  return starts;
}

size_t Pick(double uniform, size_t count) {
  return std::min(count - 1, static_cast<size_t>(uniform * static_cast<double>(count)));
}

}  // namespace

double UniformOf(uint64_t seed, int64_t step, int64_t index, uint64_t purpose) {
  uint64_t x = Mixed(seed ^ Mixed(purpose));
  x = Mixed(x ^ static_cast<uint64_t>(step));
  x = Mixed(x ^ static_cast<uint64_t>(index));
  constexpr double kTwoToMinus53 = 0x1p-53;
  return static_cast<double>(x >> 11) * kTwoToMinus53;
}

StepPlan PlanStep(const StageConfig& stage, uint64_t seed, int64_t step) {
  double shapes = 0;
  for (const RowShape& shape : stage.shapes) shapes += shape.share;
  double left = UniformOf(seed, step, 0, kShape) * shapes;
  StepPlan plan;
  for (const RowShape& shape : stage.shapes) {
    if (!(shape.share > 0)) continue;
    plan.shape = shape;
    left -= shape.share;
    if (left < 0) break;
  }
  double sum = 0;
  for (const double share : stage.kinds) sum += share;
  const auto count = static_cast<size_t>(plan.shape.count);
  const double offset = UniformOf(seed, step, 0, kKindOffset);
  for (size_t i = 0; i < count; ++i) {
    double at = (static_cast<double>(i) + offset) / static_cast<double>(count) * sum;
    size_t kind = 0;
    size_t last = 0;
    for (; kind < kRowKindCount; ++kind) {
      if (!(stage.kinds[kind] > 0)) continue;
      last = kind;
      at -= stage.kinds[kind];
      if (at < 0) break;
    }
    plan.kinds.push_back(static_cast<RowKind>(last));
  }
  // Shuffled, because one replica would otherwise get all plain rows, which cost more.
  for (size_t i = count; i > 1; --i) {
    const double uniform = UniformOf(seed, step, static_cast<int64_t>(i), kKindOrder);
    std::swap(plan.kinds[i - 1], plan.kinds[Pick(uniform, i)]);
  }
  return plan;
}

int64_t ReplayStart(const StageConfig& stage, const Row& row, int64_t window, uint64_t seed,
                    int64_t step, int64_t index) {
  if (!(UniformOf(seed, step, index, kReplay) < stage.replay_share)) return -1;
  const double uniform = UniformOf(seed, step, index, kReplayPlace);
  const std::vector<int64_t> starts = AnswerStarts(row);
  const int64_t end = starts.empty() ? static_cast<int64_t>(Pick(uniform, row.ids.size()))
                                     : starts[Pick(uniform, starts.size())];
  // The prompt ends with the position that predicts the answer's first token.
  return std::max<int64_t>(0, end + 1 - window);
}

std::vector<int64_t> DraftPlaces(int64_t length, int64_t block, uint64_t seed, int64_t step,
                                 int64_t index) {
  const int64_t places = length - block - 1;
  const int64_t count = std::clamp<int64_t>(places, 0, kDraftsPerRow);
  std::vector<int64_t> positions;
  const double uniform = UniformOf(seed, step, index, kDraftPlace);
  for (int64_t i = 0; i < count; ++i) {
    const double at = (static_cast<double>(i) + uniform) / static_cast<double>(count);
    positions.push_back(static_cast<int64_t>(Pick(at, static_cast<size_t>(places))));
  }
  return positions;
}

}  // namespace minke::train
