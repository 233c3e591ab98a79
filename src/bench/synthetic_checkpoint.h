// minke bench synth: a checkpoint with the layers and sizes of a real model and random weights, so
// that real shapes are measured without real weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/layer_cut.h"
#include "core/json.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "model/config.h"

namespace minke {

// Rows of one Engram column, about: the tables are looked up in and never read whole.
inline constexpr int64_t kSyntheticEngramVocabSize = 4096;

struct SyntheticOptions {
  std::string config_path;      // config.json of the larger model
  std::vector<int64_t> layers;  // of it, ascending
  int64_t experts = 0;
  int64_t vocab_size = 0;     // 0: the larger model's
  std::string tokenizer_dir;  // tokenizer.json and tokenizer_config.json of any model
  std::string directory;      // made; must not exist, or be empty
  uint64_t seed = 1;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; may be empty
};

struct SyntheticReport {
  int64_t tensors = 0;
  int64_t tensor_bytes = 0;
  int64_t shards = 0;

  Json ToJson(const SyntheticOptions& options) const;
};

// Writes config.json, the tokenizer (with one more id where the vocabulary is larger), minke.json
// ("random_weights", and what was cut from where), and a shard for each layer, the index last. The
// same options give the same bytes, whatever the threads. Errors: those of CutConfig(), files that
// cannot be read or written, a directory with something in it, too little room on the disk.
Result<SyntheticReport> WriteSyntheticCheckpoint(const SyntheticOptions& options, ThreadPool& pool);

}  // namespace minke
