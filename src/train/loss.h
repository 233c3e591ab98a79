// The loss of rows (docs/nano.md): the weighted mean over answer tokens plus a factor times the
// weighted mean over text, both over the whole step, so that it does not depend on how rows are
// spread over replicas.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <span>

#include "train/model.h"
#include "train/row.h"
#include "train/stage_config.h"

namespace minke::train {

struct Accuracy {
  int64_t right = 0;
  int64_t total = 0;
  double share() const {
    return total == 0 ? 0 : static_cast<double>(right) / static_cast<double>(total);
  }
};

// Sums over rows; those of replicas are added in their order.
struct LossSums {
  double recall = 0;  // weighted negative log-likelihoods, in nats
  double recall_weight = 0;
  double text = 0;
  double text_weight = 0;
  double text_nats = 0;  // without weights
  int64_t text_tokens = 0;
  std::array<Accuracy, kRowKindCount> first;  // first tokens of values, by the row's kind
  std::array<Accuracy, kRowKindCount> value;  // their further tokens
  Accuracy restated;

  void Add(const LossSums& other);
};

// The two denominators of a step.
struct LossWeights {
  double recall = 0;
  double text = 0;
  void Add(const Row& row);
};

// Factors of a weighted negative log-likelihood in the loss.
struct LossScales {
  double recall = 0;
  double text = 0;
};
LossScales ScalesOf(const LossWeights& weights, double text_factor);

// Sums over the proposals of draft stages.
struct DraftSums {
  double nats = 0;
  int64_t proposals = 0;
  int64_t right = 0;  // the row's token would be drafted
  void Add(const DraftSums& other);
};

// Mean over proposals of the negative log-likelihood of the row's token and of the cross entropy of
// the confidence with whether that token would be drafted. A scalar.
torch::Tensor DraftLoss(const DraftResult& drafts, std::span<const DraftAnchor> anchors,
                        std::span<const Row> rows, DraftSums* sums);

// hidden: [rows, T, hidden_size]. Returns the rows' share of the step's loss, a scalar, undefined
// where no position has a weight. quantization: that of the forward pass.
torch::Tensor RowLoss(const Model& model, const torch::Tensor& hidden,
                      const Quantization& quantization, std::span<const Row> rows,
                      std::span<const RowKind> kinds, const LossScales& scales, LossSums* sums);

}  // namespace minke::train
