// A run: the stages of a training config, one step after another, with its state and its log in
// the run's folder. Prints nothing; whoever calls it hears of every step.
//
// Files in the folder: training.state (training_state.h) with training.state.previous,
// stage-N.state for the end of the stage N (from 1 on), log.jsonl with one object a step.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/replicas.h"
#include "train/row_source.h"
#include "train/stage_config.h"
#include "train/training_state.h"

namespace minke::train {

inline constexpr const char* kStateFileName = "training.state";
inline constexpr const char* kLogFileName = "log.jsonl";
inline constexpr uint64_t kLogBytesMax = uint64_t{4} << 30;

struct StepReport {
  const StageConfig* stage = nullptr;
  RunPosition position;  // with this step
  StepResult result;     // without gradients
  double recall_loss = 0;
  double text_nats_per_token = 0;  // 0 where no text was supervised
  double rate_factor = 1;
  double gradient_norm = 0;  // of AdamW's part
  double step_seconds = 0;
  int64_t step_tokens = 0;
  double seconds_left = 0;  // of the whole run, as far as can be told
};

struct RunCallbacks {
  std::function<void(const StepReport&)> on_step;
  std::function<bool()> should_stop;  // asked before every step
};

enum class RunOutcome { kFinished, kStopped };

class Trainer {
 public:
  // `source` outlives it. identity.replicas says how many replicas there are.
  Trainer(TrainingConfig config, RunIdentity identity, std::unique_ptr<Model> model,
          const RowSource& source, std::string run_dir);

  // Continues from `state_path`, a state of this run; accept_changes: also if the identity differs.
  // `way_out` ends the error of a damaged state. The log loses what lies behind the state, and
  // where a line of it is damaged, all from there on.
  Status Resume(const std::string& state_path, bool accept_changes,
                std::string_view way_out = kOtherStates);
  // The line of the log, from 1 on, from which on Resume() has cut it off as damaged; 0: none.
  int64_t damaged_log_line() const { return damaged_log_line_; }
  // Takes parameters, moments and position from a state of another run: a branch.
  Status Branch(const std::string& state_path);
  // The same for a model that differs in some layers: takes the parameters that it has in common
  // with the state. `taken` hears how many.
  Status BranchMatching(const std::string& state_path, int64_t* taken);

  // Leaves out the stages before the one of that name.
  Status BeginAtStage(std::string_view name);

  // Writes the state, as Run() does from time to time.
  Status Save();

  // Runs to the end of the last stage, or until should_stop. The state is written every
  // checkpoint_minutes, at the end of each stage and before it returns kStopped. Errors: a gate
  // that is not met, a loss that is no number, files that cannot be written, what libtorch throws.
  Result<RunOutcome> Run(const RunCallbacks& callbacks);

  const RunPosition& position() const { return position_; }
  Model& model() { return *model_; }
  std::string StatePath() const;

 private:
  void BeginAt(const RunPosition& trunk);
  Result<StepReport> Step();
  Status FinishStage();
  Status OpenLog();
  Status TrimLog();
  Status WriteTo(const std::string& path, OldState old_state);
  double SecondsLeft() const;
  const StageConfig& stage() const;

  TrainingConfig config_;
  RunIdentity identity_;
  std::unique_ptr<Model> model_;
  const RowSource& source_;
  std::string run_dir_;
  Replicas replicas_;
  Optimizer optimizer_;
  RunPosition position_;
  double saved_at_seconds_ = 0;  // position_.seconds at the last writing of the state
  // StatePath() is what this run has read or written, so it may become the state before.
  bool state_is_whole_ = false;
  int64_t damaged_log_line_ = 0;
  std::ofstream log_;
};

}  // namespace minke::train
