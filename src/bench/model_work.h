// What the function of a model needs: bytes that must be read and multiply-adds that must be done,
// from the config alone (architecture.md, appendix A). The bounds of decode and prefill.
#pragma once

#include <cstdint>
#include <vector>

#include "core/json.h"
#include "model/config.h"
#include "model/state.h"

namespace minke {

// Of one call.
struct StepBytes {
  int64_t dense = 0;    // attention, shared experts, gates, mixes, norms: every layer's, once
  int64_t experts = 0;  // the routed experts that were chosen, each once
  int64_t head = 0;
  int64_t engram = 0;  // rows of the tables, of each token
  int64_t cache = 0;   // window rows, compressed rows and index keys, of each token

  int64_t total() const { return dense + experts + head + engram + cache; }
  Json ToJson() const;
};

class ModelWork {
 public:
  ModelWork(const ModelConfig& config, const StateLayout& layout);

  int64_t expert_bytes() const { return expert_bytes_; }  // of one routed expert
  // A call of one token of each of `sequences` sequences that have `context` tokens, its own
  // included. chosen_experts: distinct ones, summed over layers.
  StepBytes DecodeBytes(int64_t context, int64_t sequences, int64_t chosen_experts) const;

  // Rows of one call, at positions [begin, begin + rows), of which the last logit_rows reach the
  // head and the last decoder_rows the layers above the split (6.2).
  double MultiplyAdds(int64_t begin, int64_t rows, int64_t decoder_rows, int64_t logit_rows) const;

 private:
  double LayerMultiplyAdds(int64_t layer, int64_t begin, int64_t rows) const;
  int64_t ScoredRows(const LayerRole& role, int64_t context) const;

  ModelConfig config_;
  StateLayout layout_;
  std::vector<int64_t> dense_bytes_;        // by layer
  std::vector<int64_t> linear_parameters_;  // by layer, of matrices that every token meets
  int64_t expert_bytes_ = 0;
  int64_t expert_parameters_ = 0;
  int64_t head_bytes_ = 0;
  int64_t head_parameters_ = 0;
};

}  // namespace minke
