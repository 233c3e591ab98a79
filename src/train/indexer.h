// The sparse indexer of one index source (architecture.md 4.4-4.6): scores, candidate pool, top-k
// lists, its KL loss (docs/nano.md) and the figures of its quality.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

#include "train/attention.h"

namespace minke::train {

// What a source scores with. All rotated, and rounded where that is asked for.
struct IndexVectors {
  torch::Tensor queries;  // [B, T, heads * dim]
  torch::Tensor weights;  // [B, T, heads], scaled
  torch::Tensor keys;     // [B, Tc, dim]
  int64_t ratio = 1;

  int64_t heads() const { return weights.size(2); }
  int64_t visible(int64_t position) const { return (position + 1) / ratio; }
};

struct SelectionOptions {
  int64_t topk = 0;
  int64_t block_size = 0;  // of the candidate pool; 0: there is no pool
  int64_t topk_blocks = 0;
  bool publishes = false;   // fills the pool
  bool restricted = false;  // selects inside the pool
};

// The lists of every query, int32 [B, T, topk], ascending, -1 behind. kept: uint8 [B, T, blocks],
// written if publishes, read if restricted. No gradient.
torch::Tensor SelectRows(const IndexVectors& vectors, const SelectionOptions& options,
                         torch::Tensor& kept);

// A pool in which nothing is kept yet, for `rows` compressed rows.
torch::Tensor MakePool(int64_t batch, int64_t tokens, int64_t rows, int64_t block_size);

// Mean over queries at or behind first_position, weighted by their attention mass m on compressed
// rows, of KL(attention / m || softmax(scores)), over every visible row, or over the listed ones.
// mass: as AttentionMass::rows. Gradients reach the vectors alone.
torch::Tensor IndexLoss(const IndexVectors& vectors, const torch::Tensor& mass,
                        const torch::Tensor& selected, int64_t first_position);

// Where lists are short, the loss over them never asks for a row that they lack. This one compares
// with attention over all rows: mean over measured queries of KL(target || softmax(scores)), both
// over every visible row. target: [measured, Tc], each row sums to one, or is zero and left out.
torch::Tensor MeasuredIndexLoss(const IndexVectors& vectors,
                                const std::vector<MeasuredQuery>& measured,
                                const torch::Tensor& target);

// What lists are for is to hold the rows with most attention, and where attention is flat KL is
// small although they do not: this loss asks for nothing else. Mean over measured queries of
//   sum over rows of target * log((1 + (list_rows - 1) * p) / (list_rows * p)), p = softmax(scores)
// over every visible row: KL but for a constant if list_rows is 1; otherwise a row from whose score
// it follows that a list of list_rows rows holds it has hardly any gradient. target: as above.
torch::Tensor ListLoss(const IndexVectors& vectors, const std::vector<MeasuredQuery>& measured,
                       const torch::Tensor& target, int64_t list_rows);

// Sums over measured queries.
struct QualitySums {
  double queries = 0;
  double top1 = 0;       // the row with most attention is listed
  double mass = 0;       // fraction of attention on listed rows
  double pool = 0;       // the row with most attention is in the pool
  double pool_topk = 0;  // fraction of the topk rows with most attention that are in the pool
  double in_a_pool = 0;  // queries that have a pool
};
// Scores and selects again for the measured queries alone. pool_rows: of each of them, the kept
// blocks [measured][blocks], written if publishes, read if restricted.
QualitySums MeasureSelection(const IndexVectors& vectors, const SelectionOptions& options,
                             const AttentionMass& mass,
                             std::vector<std::vector<uint8_t>>& pool_rows);

}  // namespace minke::train
