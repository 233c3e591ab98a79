// One forward pass: the layers over whole rows (architecture.md 3, 4, 6, 7, 8).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/layers.h"
#include "train/indexer.h"
#include "train/model.h"
#include "train/model_parameters.h"

namespace minke::train {

// Lives for one call; everything it keeps a reference to outlives it.
class ForwardPass {
 public:
  ForwardPass(const ModelConfig& config, const ModelTables& tables, const ModelTensors& tensors,
              const ForwardOptions& options)
      : config_(config), tables_(tables), tensors_(tensors), options_(options) {}

  ForwardResult Run(const torch::Tensor& ids);

 private:
  // The rows of one kv source.
  struct Rows {
    torch::Tensor compressed;  // [B, Tc, head_dim], rotated and rounded
    torch::Tensor index_keys;  // [B, Tc, index_head_dim]
  };
  // An index source with the layers that it serves.
  struct IndexGroup {
    int64_t layer = -1;
    IndexVectors vectors;
    SelectionOptions selection;
    torch::Tensor selected;  // undefined: dense
    AttentionMass mass;
  };

  void MakeTables();
  void ChooseMeasured();
  bool IsTapped(int64_t layer) const;  // a draft stage reads where it begins
  torch::Tensor EngramWrite(int64_t layer, const torch::Tensor& ids, const torch::Tensor& streams);
  // u: [N, d] -> [N, d].
  torch::Tensor Attention(int64_t layer, const torch::Tensor& u);
  void Compress(int64_t layer, const torch::Tensor& u);
  void OpenIndexGroup(int64_t layer, const torch::Tensor& u, const torch::Tensor& query_latent);
  torch::Tensor AttendRows(int64_t layer, const torch::Tensor& q, const torch::Tensor& window_rows);
  torch::Tensor FeedForward(int64_t layer, const torch::Tensor& u, ForwardResult& result);
  void FinishIndex(ForwardResult& result);
  // What the index of a group ought to find for the measured queries, [measured, Tc].
  torch::Tensor MeasuredTarget(const IndexGroup& group) const;

  const torch::Tensor& QueryTable(int64_t ratio) const {
    return ratio == 0 ? window_table_ : compressed_table_;
  }
  torch::Tensor RoundActivations(const torch::Tensor& x) const;
  bool IsMeasured(int64_t batch, int64_t position) const;

  const ModelConfig& config_;
  const ModelTables& tables_;
  const ModelTensors& tensors_;
  const ForwardOptions& options_;

  int64_t batch_ = 0;
  int64_t tokens_ = 0;
  torch::Tensor window_table_;      // rotations of positions 0, 1, ... in layers without rows
  torch::Tensor compressed_table_;  // in the other layers
  std::vector<MeasuredQuery> measured_;
  std::vector<Rows> rows_;  // by kv source
  std::vector<IndexGroup> groups_;
  torch::Tensor pool_;  // uint8 [B, T, blocks] of the candidate source
};

}  // namespace minke::train
