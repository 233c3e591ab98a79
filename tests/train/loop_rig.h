// A run small enough for tests: rows of repeated pairs, a plan of two stages, the stand-in model.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/row_source.h"
#include "train/trainer.h"

namespace minke::testing {

inline constexpr int64_t kRigVocabulary = 32;

// Rows of token pairs: each even token is followed by one that it determines.
class PairRows : public train::RowSource {
 public:
  train::Row Make(const train::RowRequest& request) const override;
};

inline constexpr const char* kRigPlan = R"({"seed": 5, "checkpoint_minutes": 0, "stages": [
  {"name": "first", "steps": 12, "rows": [{"length": 64, "count": 4}],
   "kinds": {"list": 0.5, "document": 0.25, "plain": 0.25}, "warmup_steps": 4, "distill": 0.1,
   "embedding_rate": 0.1},
  {"name": "second", "tokens": 2048, "rows": [{"length": 64, "count": 4, "share": 1},
                                               {"length": 128, "count": 2, "share": 1}],
   "kinds": {"document": 0.5, "plain": 0.5}, "decay_share": 0.5, "replay_share": 0.5,
   "embedding_rate": 0.1}]})";

struct Rig {
  PairRows rows;
  std::unique_ptr<train::Trainer> trainer;
};
// A run in `folder` by kRigPlan.
std::unique_ptr<Rig> MakeRig(const std::string& folder, int64_t replicas,
                             const std::string& plan = kRigPlan);

// Losses of the log by step; gaps and repetitions are test errors.
std::vector<double> LoggedLosses(const std::string& folder);

}  // namespace minke::testing
