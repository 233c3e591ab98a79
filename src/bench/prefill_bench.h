// minke bench prefill: tokens per second of a prompt, against the multiply-adds that it needs over
// the float32 peak of the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/layer_clock.h"
#include "bench/machine.h"
#include "core/json.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "model/forward.h"

namespace minke {

inline constexpr int64_t kBenchPromptTokensMax = int64_t{1} << 20;

struct PrefillBenchOptions {
  int64_t tokens = 512;  // of the prompt
  int64_t rows = 512;    // of a call
  int64_t context = 0;   // synthetic tokens before the prompt
  bool exact = true;     // every token through every layer
  bool replay = false;   // only the last window of tokens through the layers above the split (6.2)
  int64_t rounds = kRoundsMin;
  uint64_t seed = 1;
  std::map<std::string, int64_t> layer_kinds;  // of the larger model, see ReadLayerKinds()
  std::function<void(int64_t done, int64_t total)> progress;  // calls; may be empty
};

struct PrefillBenchCase {
  bool replay = false;
  double multiply_adds = 0;  // of the prompt, with the head for its last token
  Samples prompts_per_second;
  KindTimes times;
};

struct PrefillBenchReport {
  std::string kernels;
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t context = 0;
  std::vector<PrefillBenchCase> cases;  // exact first
  Json machine;
  std::string machine_text;
  double multiply_adds_per_second = 0;
  double foreign_cpu_share = 0;

  double TokensPerSecond(const PrefillBenchCase& one) const;
  // The bound's time over the measured one, by medians: 1 is the machine's limit.
  double Ratio(const PrefillBenchCase& one) const;
  // Time of the replay over that of the exact prompt, over the layers of the larger model; 0 unless
  // both were measured.
  double ReplayShare() const;
  Json ToJson() const;
  std::string ToText() const;
};

// Every round takes a sample of the machine and then a prompt of each kind, in a sequence of its
// own. Errors: no memory, a context that the model does not hold, a model without replay.
Result<PrefillBenchReport> MeasurePrefill(const Model& model, const PrefillBenchOptions& options,
                                          ThreadPool& pool);

}  // namespace minke
