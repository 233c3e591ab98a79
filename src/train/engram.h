// Engram (architecture.md 8.3, 8.4): rows looked up by n-gram, and their gated write into the
// residual streams.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace minke::train {

// rows: int64 [N, columns], row ids. table: [table rows, dim]. Returns [N, columns * dim], on the
// table's FP8 grid if quantize.
torch::Tensor LookUpEngram(const torch::Tensor& table, const torch::Tensor& rows, bool quantize);

// streams[c] += gate[c] * value, where gate is a sigmoid of the signed root of the normed product
// of stream and key. streams: [N, n * d]; projected: [N, (n + 1) * d], n keys and then the value;
// q_weight, k_weight: [n, d].
torch::Tensor WriteEngram(const torch::Tensor& streams, const torch::Tensor& projected,
                          const torch::Tensor& q_weight, const torch::Tensor& k_weight,
                          double norm_eps);

}  // namespace minke::train
