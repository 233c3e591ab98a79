// The laboratory's plan, models/nano/ablations.json: rows of tables, each a model that branches off
// a trunk run (or is trained from scratch), with changes of its config, stages of its own, and the
// ways in which it is evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "train/model.h"
#include "train/stage_config.h"

namespace minke::train {

inline constexpr uint64_t kAblationPlanBytesMax = uint64_t{1} << 20;
inline constexpr size_t kAblationRowsMax = 256;
inline constexpr size_t kAblationSeedsMax = 32;
inline constexpr size_t kAblationVariantsMax = 32;

// One way to look at a trained row.
struct AblationVariant {
  std::string name;
  ForwardOptions options;
  // Of the prompt's last tokens so many are in the decoder's window; -1: all, an exact prefill.
  int64_t replay_tokens = -1;
};

struct AblationRow {
  std::string table;  // "cache precision"
  std::string name;   // "FP4 in training"
  // "stage-4.state" of the trunk; empty: from scratch. A config with other layers takes what both
  // have in common. Where the trunk is an exported model, "training.state" are its weights.
  std::string trunk_state;
  // Members of text_config that are replaced, as JSON.
  std::string config_changes;
  TrainingConfig training;  // no stages: the trunk's weights as they are
  std::vector<uint64_t> seeds;
  std::vector<int64_t> lengths;  // tokens of recall prompts: those of the row, else the plan's
  std::vector<AblationVariant> variants;
};

struct AblationPlan {
  std::vector<int64_t> lengths;  // tokens of recall prompts, of rows that name none
  int64_t cases = 100;           // of each length
  uint64_t seed = 1;             // of the cases
  int64_t text_tokens = 20'000;  // of held-out text
  int64_t window = 512;          // tokens of context when reading it
  std::vector<AblationRow> rows;
};

// Stage lists that several rows share are written once, under "stages" of the plan; a row names
// one. Errors name `what`, the key with its place, what is accepted and what was found.
Result<AblationPlan> ParseAblationPlan(std::string_view text, std::string_view what);

// config.json with members of its text_config replaced; every member must be there already.
Result<std::string> ChangeConfig(std::string_view config_text, std::string_view changes,
                                 std::string_view what);

// What a row begins with.
struct TrunkIdentity {
  std::string config_text;
  std::string weights;  // their digest; empty: from scratch
};

// A digest of everything but lengths, cases and stage lengths that a row's result depends on and
// that is said by the plan and by its trunk.
std::string SetupDigest(const AblationPlan& plan, const AblationRow& row,
                        const AblationVariant& variant, const TrunkIdentity& trunk);

// What a token of context costs in compressed rows and index keys, with rows of that precision and
// index keys rounded or in bf16.
double CacheBytesPerToken(const ModelConfig& config, RowPrecision rows, bool index_rounded);
// Index keys that one query at the end of `tokens` tokens is scored against, over all indexers.
double IndexedKeysPerQuery(const ModelConfig& config, int64_t tokens, bool pool);

}  // namespace minke::train
