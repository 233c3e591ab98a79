// Rotary positions (architecture.md 0.6) of whole rows.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace minke::train {

// cos and sin of positions 0, step, 2 step, ...: [rows, pairs, 2] float32.
torch::Tensor MakeRopeTable(const std::vector<float>& inverse_frequencies, int64_t rows,
                            int64_t step);

// Rotates the last 2 * pairs channels of every head by +angle, or -angle if inverse.
// x: [B, rows, heads * head_dim]; table: of `rows` rows.
torch::Tensor Rope(const torch::Tensor& x, int64_t head_dim, const torch::Tensor& table,
                   bool inverse);

}  // namespace minke::train
