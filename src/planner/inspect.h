// What `minke inspect` says about a model: layers, parameters, tensors and cache sizes, computed
// from the config alone, and compared with a checkpoint where there is one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "core/result.h"
#include "model/config.h"
#include "model/weights.h"

namespace minke {

struct PartTotals {
  ModelPart part = ModelPart::kBackbone;
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t parameters = 0;  // logical elements; scales do not count
};

// Per-sequence memory. The draft stages' window rings are not included: the text backbone alone
// does not have them.
struct CacheReport {
  double kv_bytes_per_token = 0;           // global rows, averaged over whole groups
  std::vector<std::string> kv_derivation;  // how that number comes about, a line a step
  int64_t context_tokens = 0;              // max_position_embeddings
  double kv_bytes_at_context = 0;
  int64_t window_state_bytes = 0;  // rings of all layers; constant
  std::string window_derivation;
  int64_t open_group_bytes = 0;  // compressor inputs of unfinished groups
  int64_t engram_history_bytes = 0;
};

class InspectReport {
 public:
  // With a checkpoint, fails unless its tensors are exactly those that the config demands.
  // `checkpoint` may be null and is not kept.
  static Result<InspectReport> Make(const ModelConfig& config, const Checkpoint* checkpoint);

  int64_t tensors() const { return tensors_; }
  int64_t tensor_bytes() const { return tensor_bytes_; }
  int64_t parameters() const { return parameters_; }
  const std::vector<PartTotals>& parts() const { return parts_; }
  const CacheReport& cache() const { return cache_; }

  // Several tables, for a terminal of 80 columns. Ends with a newline.
  std::string ToText() const;
  // Keys: tensors, tensor_bytes, parameters (one per part, total), parts, kv_bytes_per_token,
  // kv_derivation, window_state_bytes, ..., layers[] (mode, compress_ratio, ...), checkpoint.
  Json ToJson() const;

 private:
  std::string LayersText() const;
  std::string PartsText() const;
  std::string CacheText() const;

  std::vector<LayerRole> layers_;
  std::vector<PartTotals> parts_;
  int64_t tensors_ = 0;
  int64_t tensor_bytes_ = 0;
  int64_t parameters_ = 0;
  CacheReport cache_;
  bool has_checkpoint_ = false;
  std::string directory_;
  uint64_t shard_count_ = 0;
  uint64_t file_bytes_ = 0;
};

}  // namespace minke
