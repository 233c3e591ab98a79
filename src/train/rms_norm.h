// RMSNorm as one pass forward and one backward (architecture.md 0.5).
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace minke::train {

// y = weight * x / sqrt(mean(x^2) + eps) over the last axis. x: [..., n]; weight: [n].
torch::Tensor RmsNorm(const torch::Tensor& x, const torch::Tensor& weight, double eps);

// The rows of it, for the functions that fuse a norm.
// 1 / sqrt(mean(x^2) + eps) of one row; y = weight * (x * that).
float RmsNormRow(const float* x, const float* weight, int64_t n, float eps, float* y);
// dx (overwritten) and dweight (added to) of one row. inverse: what RmsNormRow returned.
void RmsNormRowBackward(const float* x, const float* weight, const float* dy, int64_t n,
                        float inverse, float* dx, float* dweight);

}  // namespace minke::train
