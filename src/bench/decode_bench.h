// minke bench decode and minke bench context: tokens per second, one after the other, against the
// bytes that they need over the read bandwidth of the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/disk_rate.h"
#include "bench/layer_clock.h"
#include "bench/machine.h"
#include "bench/model_work.h"
#include "bench/stream_report.h"
#include "core/json.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "model/forward.h"

namespace minke {

inline constexpr int64_t kBenchSequencesMax = 256;
inline constexpr int64_t kBenchTokensMax = 100'000;

struct DecodeBenchOptions {
  std::vector<int64_t> contexts;  // tokens before the first measured one
  int64_t tokens = 16;            // measured for each context
  int64_t sequences = 1;          // that decode together, a token each a step
  uint64_t seed = 1;
  std::map<std::string, int64_t> layer_kinds;  // of the larger model, see ReadLayerKinds()
  DiskFile* disk = nullptr;  // of a model with a stream, what its reads are compared with
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

struct DecodeBenchCase {
  int64_t context = 0;
  int64_t sequences = 1;
  Samples steps_per_second;
  Samples bound_share;  // bytes of the step over the bandwidth of its round, over its time
  KindTimes times;
  StepBytes bytes;                   // of the last step
  double multiply_adds = 0;          // of the last step
  double cache_bytes_per_token = 0;  // of the whole context

  double tokens_per_second() const {
    return steps_per_second.Median() * static_cast<double>(sequences);
  }
};

struct DecodeBenchReport {
  std::string kernels;
  std::vector<DecodeBenchCase> cases;
  StreamReport stream;  // over all cases
  Json machine;
  std::string machine_text;
  double bytes_per_second = 0;
  double multiply_adds_per_second = 0;
  double foreign_cpu_share = 0;

  // The time in which the bytes of a step are read over the measured one, by medians: 1 is the
  // machine's limit.
  double Ratio(const DecodeBenchCase& one) const;
  Json ToJson() const;
  std::string ToText() const;         // of minke bench decode
  std::string ToContextText() const;  // of minke bench context: growth with the context
};

// Contexts are synthetic (MakeSyntheticContext). Every round takes a sample of the machine and then
// a step for each context. Errors: no memory, a context that the model does not hold.
Result<DecodeBenchReport> MeasureDecode(const Model& model, const DecodeBenchOptions& options,
                                        ThreadPool& pool);

// Reads one byte of every page of the weights, so that they are in memory and mapped. False, and
// nothing is read, where they do not fit into the memory that is available.
bool TouchWeights(const Checkpoint& checkpoint);

}  // namespace minke
