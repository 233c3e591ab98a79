// Attention of whole rows over [window | compressed | sink] (architecture.md 0.7, 4.6, 4.7), as one
// differentiable function. Keys are values, and all heads share them. Queries go in blocks of one
// window: a block sees the keys of its own and of the previous block through a band, and compressed
// rows either all up to its visibility (one product) or as lists (dot products).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace minke::train {

// A query whose attention is measured over every visible row.
struct MeasuredQuery {
  int64_t batch = 0;
  int64_t position = 0;
};

struct AttentionMask {
  int64_t window = 1;      // sliding_window
  int64_t ratio = 0;       // of the compressed rows; 0: there are none
  torch::Tensor selected;  // int32 [B, T, k], -1 in unused slots; undefined: every visible row
  // [B] or empty: queries from there on do not see window rows before it; -1: all see all.
  std::vector<int64_t> window_from;
};

// Probabilities on compressed rows, summed over heads and over the calls that share this. No
// gradient. Undefined tensors: not wanted.
struct AttentionMass {
  torch::Tensor rows;                   // [B, T, Tc], or [B, T, k] with a selection
  std::vector<MeasuredQuery> measured;  // queries of the next
  torch::Tensor measured_rows;          // [measured, Tc], as if nothing had been selected
};

// q: [B, T, heads * head_dim]; window_rows: [B, T, head_dim]; compressed: [B, Tc, head_dim] or
// undefined; sink: [heads]. Returns [B, T, heads * head_dim]. All are rotated, and rounded where
// that is asked for.
torch::Tensor Attend(const torch::Tensor& q, const torch::Tensor& window_rows,
                     const torch::Tensor& compressed, const torch::Tensor& sink,
                     const AttentionMask& mask, AttentionMass* mass);

}  // namespace minke::train
