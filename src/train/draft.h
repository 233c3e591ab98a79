// The DSpark stages (architecture.md 9.1-9.3) on whole rows: what they propose behind given
// positions when the tokens before each proposal are those of the row.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "train/model.h"
#include "train/model_parameters.h"

namespace minke::train {

// What the stages read of the backbone. No gradient goes back into it.
struct DraftInputs {
  torch::Tensor ids;   // int64 [B, T]
  torch::Tensor taps;  // [B, T, taps * d]: means over the streams where the tapped layers begin
  const std::vector<DraftAnchor>* anchors = nullptr;
  const std::vector<float>* frequencies = nullptr;  // of the rotations without compressed rows
};

// REQUIRES: at least one anchor, each with dspark_block_size + 1 tokens of its row behind it.
DraftResult RunDrafts(const ModelConfig& config, const ModelTensors& tensors,
                      const DraftInputs& inputs, const Quantization& quantization);

// Attention of blocks of drafted tokens (9.3): every query of a block sees its context rows that
// exist and every row of its own block, later ones too.
// q: [A, block, heads * head_dim]; context: [A, W, head_dim]; exists: bool [A, W];
// block_rows: [A, block, head_dim]; sink: [heads]. Returns [A, block, heads * head_dim].
torch::Tensor AttendDraft(const torch::Tensor& q, const torch::Tensor& context,
                          const torch::Tensor& exists, const torch::Tensor& block_rows,
                          const torch::Tensor& sink);

}  // namespace minke::train
