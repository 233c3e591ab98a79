// The commands of minke-train: what their flags say, and what runs them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"

namespace minke::train {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;  // the work could not be done
inline constexpr int kExitUsage = 2;    // the command line is wrong
inline constexpr int kExitStopped = 3;  // a run was interrupted and can be continued

inline constexpr uint64_t kTextFileBytesMax = uint64_t{1} << 30;

struct TokenizerFlags {
  std::string corpus;
  std::string out;
  int64_t vocab_size = 0;  // 0: that of nano
};

struct CorpusFlags {
  bool list = false;  // name the packages, and do nothing
  std::string packages;
  std::string out;
};

struct RunFlags {
  std::string run;
  std::string model;   // folder with config.json and the tokenizer's files
  std::string config;  // empty: training.json of that folder
  std::string corpus;
  std::string init;    // weights to start from
  std::string branch;  // a state to start from
  std::string stage;   // where to start; empty: the first
  std::optional<uint64_t> seed;
  int replicas = 0;  // 0: one per processor
  bool resume = false;
  bool resume_previous = false;
  bool accept_changes = false;
  bool allow_slow_blas = false;
};

struct ExportFlags {
  std::string run;
  std::string state;
  std::string out;
};

// Which model, and how its forward pass is changed.
struct WeightsFlags {
  std::string model;
  std::string state;
  std::string attention = "sparse+pool";
  std::string quantization = "all";
  bool mask = false;
  bool no_engram = false;
  bool replay = false;
};

struct EvaluateFlags {
  WeightsFlags weights;
  std::vector<int64_t> lengths = {256, 512, 1024};
  int64_t cases = 40;
  uint64_t seed = 1;
  bool held_out_keys = false;
  std::string filler;
  std::string text;  // a file; empty: no perplexity
  int64_t text_tokens = 20'000;
  int64_t window = 512;
};

struct GreedyFlags {
  WeightsFlags weights;
  int64_t length = 512;
  int64_t cases = 40;
  uint64_t seed = 1;
  std::string filler;
};

struct CompareFlags {
  std::string model;  // an exported one
  std::vector<int64_t> lengths = {512};
  int64_t cases = 200;
  uint64_t seed = 1;
  std::string filler;
  std::string numerics = "official";  // of the engine
  bool json = false;
};

struct AblateFlags {
  bool tables = false;  // print what the results hold, and do nothing
  std::string plan;
  std::string trunk;  // the run whose states rows branch off
  std::string corpus;
  std::string work;     // gets a run's folder for each row and seed
  std::string results;  // appended to; rows that it has are not run again
  std::string row;      // empty: all
  std::optional<uint64_t> seed;
  int64_t replicas = 1;
  // Instead of the plan's, for a quick look: 0 and empty mean the plan's.
  int64_t steps = 0;  // of every stage
  int64_t cases = 0;
  std::vector<int64_t> lengths;
};

// Each returns an exit code and has said on stderr what went wrong.
int RunTokenizer(const TokenizerFlags& flags);
int RunCorpus(const CorpusFlags& flags);
int RunTraining(const RunFlags& flags);
int RunExport(const ExportFlags& flags);
int RunEvaluate(const EvaluateFlags& flags);
int RunGreedy(const GreedyFlags& flags);
int RunCompare(const CompareFlags& flags);
int RunAblate(const AblateFlags& flags);

// "minke-train: error: ..." in one line on stderr. Returns kExitFailure.
int PrintError(const Error& error);
void PrintNote(const std::string& sentence);

}  // namespace minke::train
