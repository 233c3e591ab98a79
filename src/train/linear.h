// Products with weights (architecture.md 0.4), and the grouped output projection (4.7).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace minke::train {

// y = x weight^T. x: [..., in]; weight: [out, in].
torch::Tensor Linear(const torch::Tensor& x, const torch::Tensor& weight);

// Channels split into `groups`, each with a weight of its own. x: [..., groups * in];
// weight: [groups * rank, in]; y: [..., groups * rank].
torch::Tensor GroupedLinear(const torch::Tensor& x, const torch::Tensor& weight, int64_t groups);

}  // namespace minke::train
