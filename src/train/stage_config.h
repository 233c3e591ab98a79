// The training plan, models/nano/training.json: the stages of a run, one after another. Together
// with the seed and the corpus it determines the run, but for stages that are measured in minutes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "train/model.h"

namespace minke::train {

inline constexpr uint64_t kTrainingConfigBytesMax = uint64_t{1} << 20;
inline constexpr int64_t kTrainingSeedMax = int64_t{1} << 53;  // exact in every JSON reader
inline constexpr size_t kStageCountMax = 64;
inline constexpr size_t kStageNameMax = 64;         // characters
inline constexpr size_t kShapesMax = 16;            // row shapes of one stage
inline constexpr int64_t kRowTokensMin = 64;        // tokens of a row
inline constexpr int64_t kRowTokensMax = 16'384;    // tokens of a row
inline constexpr int64_t kStepTokensMax = 1 << 20;  // tokens of a step
inline constexpr int64_t kRateStepsMax = 1'000'000'000;
inline constexpr double kStageMinutesMax = 100'000;

// The three kinds of rows (docs/nano.md): lists of keys and values, documents with facts and
// questions about them, plain text.
enum class RowKind : uint8_t { kList, kDocument, kPlain };
inline constexpr size_t kRowKindCount = 3;
const char* RowKindName(RowKind kind);  // "list", "document", "plain"

// One way to cut a step's tokens into rows.
struct RowShape {
  int64_t length = 256;  // tokens of a row
  int64_t count = 8;     // rows of a step
  double share = 1;      // of the steps, relative to the other shapes
};

// How long a stage lasts; exactly one is positive.
struct StageLength {
  int64_t steps = 0;
  int64_t tokens = 0;
  double minutes = 0;  // of training time; what is then reached depends on the machine
};

// Weights of targets within the recall part of the loss, and of the text part against it.
struct TargetWeights {
  double first = 1;     // first token of a value
  double value = 1;     // its further tokens
  double restated = 1;  // words of the answer that repeat the question, and its end
  double text = 1;      // the mean over text positions; the recall mean counts 1
};

struct StageConfig {
  std::string name;
  StageLength length;
  std::vector<RowShape> shapes;
  std::array<double, kRowKindCount> kinds = {0, 0, 1};  // shares of rows, by RowKind
  bool sparse = false;
  bool pool = false;
  int64_t index_topk = 0;             // rows in a list; 0: as the model's config says
  int64_t candidate_topk_blocks = 0;  // blocks in the pool; 0: as the model's config says
  Quantization quantization;
  double replay_share = 0;  // of the rows: decoder on a truncated window, as after replay
  TargetWeights weights;
  double text_share = 1;  // of the text positions of list and document rows that are supervised
  double distill = 0;     // weight of the indexers' loss; 0: not computed
  // Everything but the indexers stays as it is, and their loss is ListLoss() (train/indexer.h).
  bool indexers_only = false;
  double index_sharpness = 1;  // of the attention that it compares with
  double drafts = 0;           // weight of the DSpark stages' loss; 0: not computed
  int64_t facts_min = 3;       // facts of a document row
  int64_t facts_max = 7;
  int64_t questions_min = 3;  // and questions about them
  int64_t questions_max = 5;
  bool short_values = false;  // more values of one and two tokens, where the look-up is most of it
  double muon_rate = 0.02;
  double adam_rate = 0.003;
  double embedding_rate = 0.006;
  double engram_factor = 3;      // of adam_rate, for Engram tables
  double structured_factor = 1;  // of every rate, for parameters that hold structure
  double router_bias_rate = 0.002;
  int64_t warmup_steps = 0;  // rates rise linearly from 0 at the stage's start
  double decay_share = 0;    // last part of the stage in which rates fall linearly ...
  double decay_to = 0.1;     // ... to this factor
  double gate_first = 0;     // least first-token accuracy on list rows at the end; 0: no gate
};

struct TrainingConfig {
  uint64_t seed = 1;
  double checkpoint_minutes = 3;  // between two writings of the training state
  std::vector<StageConfig> stages;
  std::string digest;  // of the meaning, not of the layout of the file
  std::string what;    // the file, for errors
};

// Errors name `what`, the key with its place ("stages[1].muon_rate"), what is accepted and what was
// found. Unknown keys are errors.
Result<TrainingConfig> ParseTrainingConfig(std::string_view text, std::string_view what);
Result<TrainingConfig> LoadTrainingConfig(const std::string& path);

// The place of the stage of that name. An error tells which there are.
Result<int64_t> FindStage(const TrainingConfig& training, std::string_view name);

// Errors name the first stage that trains what the model has not got, or reads lists that the
// model's candidate pool may not fill.
Status CheckStages(const TrainingConfig& training, const ModelConfig& model);

class KeyReader;
// The key "quantization": "none", "all", or an object with rows ("float", "bf16", "q4k", "harsh"),
// index, window, activations and weights; what an object does not name is not rounded. Untouched
// where the key is absent.
Status ReadQuantization(KeyReader& reader, Quantization* quantization);

// How far a stage is, 0 at its start, 1 or more at its end.
struct StageCounters {
  int64_t steps = 0;
  int64_t tokens = 0;
  double seconds = 0;
};
double StageProgress(const StageLength& length, const StageCounters& done);

// The factor of every rate in the next step: warm-up and decay.
double RateFactor(const StageConfig& stage, const StageCounters& done);

}  // namespace minke::train
