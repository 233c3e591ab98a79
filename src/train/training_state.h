// The resumable state of a run in one file: parameters, what the optimizer remembers, and how far
// the run is. Rows and noise are functions of seed and step, so nothing else has to be kept.
//
// A file is written whole under a temporary name, flushed and renamed, and the one before is kept
// beside it, so the process may be killed at any instruction and leaves a whole state behind.
// Reading checks a digest over every byte before anything is taken from it.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "train/model.h"
#include "train/optimizer.h"
#include "train/stage_config.h"

namespace minke::train {

inline constexpr uint64_t kStateBytesMax = uint64_t{8} << 30;
inline constexpr uint64_t kStateHeaderBytesMax = uint64_t{4} << 20;

// What a run is made of, as digests. A state continues only the run that it comes from.
struct RunIdentity {
  std::string training_config;
  std::string model_config;
  std::string tokenizer;
  std::string corpus;
  uint64_t seed = 0;
  int64_t replicas = 1;
};

// How far a run is.
struct RunPosition {
  int64_t step = 0;    // steps done, over all stages
  int64_t tokens = 0;  // over all stages
  double seconds = 0;  // of training, over all stages
  int64_t stage = 0;   // the one to continue
  StageCounters in_stage;
  double gate_first = 0;  // running mean of first-token accuracy on list rows, for the gate
};

struct StateFile {
  RunIdentity identity;
  RunPosition position;
};

// What becomes of the file that a new state replaces.
enum class OldState {
  kKeep,  // it goes to path + ".previous"; REQUIRES that it is whole
  kDrop,  // path + ".previous" stays as it is
};

Status WriteState(const std::string& path, const StateFile& state,
                  const std::vector<Parameter>& parameters, const std::vector<Moments>& moments,
                  OldState old_state);

// The way out of a damaged state for those who can name another one.
inline constexpr std::string_view kOtherStates =
    "Name another state of that run, if it has one (training.state.previous, stage-N.state).";

// Reads into parameters and moments, which have the names and shapes of the file's; on error they
// are as before. A file that is cut short, damaged or of another model is refused with its name;
// `way_out` is the last sentence of the error where it is damaged.
Result<StateFile> ReadState(const std::string& path, std::vector<Parameter>& parameters,
                            std::vector<Moments>& moments, std::string_view way_out = kOtherStates);

// Takes what the file has under the names and sizes of these parameters and moments, for a model
// that differs from the file's in some layers; everything else stays as it is. `taken` hears how
// many of the parameters were found.
Result<StateFile> ReadMatchingState(const std::string& path, std::vector<Parameter>& parameters,
                                    std::vector<Moments>& moments, int64_t* taken);

std::string PreviousStatePath(const std::string& path);

// Removes what processes that were killed while they wrote a state have left in `folder`: files
// with the temporary names of WriteFile() beside a state. A whole state that somebody else can have
// copied there stays. REQUIRES: no other process writes to the folder.
Status RemoveUnfinishedStates(const std::string& folder);

// An error that names what differs and both digests.
Status CheckIdentity(const std::string& path, const RunIdentity& found,
                     const RunIdentity& expected);

}  // namespace minke::train
