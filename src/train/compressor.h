// Pooling of `ratio` tokens into one latent (architecture.md 4.3).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace minke::train {

// Per channel a softmax of the gates of a group weighs its rows. kv, gate: [B, T, head_dim] ->
// [B, T / ratio, head_dim]; tokens of an open last group are left out.
torch::Tensor PoolGroups(const torch::Tensor& kv, const torch::Tensor& gate, int64_t ratio);

}  // namespace minke::train
