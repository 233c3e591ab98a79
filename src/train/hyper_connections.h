// Manifold-constrained hyper-connections (architecture.md 3.2-3.4) as three fused functions.
// n = hc_mult residual streams of d channels, N tokens.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace minke::train {

struct HyperConnectionTensors {
  torch::Tensor fn;     // [(2 + n) * n, n * d]
  torch::Tensor base;   // [(2 + n) * n]
  torch::Tensor scale;  // [3]
};

struct HyperConnectionOptions {
  int64_t hc_mult = 1;
  int64_t sinkhorn_iters = 1;
  double norm_eps = 0;  // of the statistic of the mixes and of the RMSNorm
  double hc_eps = 0;
};

// What a sublayer reads, and what becomes of the streams after it.
struct HyperConnectionRead {
  torch::Tensor input;  // [N, d]: RMSNorm of the collapsed streams
  torch::Tensor pre;    // [N, n]: collapse weights of the next sublayer
  torch::Tensor post;   // [N, n]
  torch::Tensor comb;   // [N, n * n], source-major
};

// Coefficients from the streams, and the collapse by the weights of the sublayer before (3.3, 3.4).
// streams: [N, n * d]; pre: [N, n]; norm: [d].
HyperConnectionRead ReadStreams(const torch::Tensor& streams, const torch::Tensor& pre,
                                const HyperConnectionTensors& tensors, const torch::Tensor& norm,
                                const HyperConnectionOptions& options);

// RMSNorm of the collapse alone, before the head.
torch::Tensor CollapseAndNorm(const torch::Tensor& streams, const torch::Tensor& pre,
                              const torch::Tensor& norm, double eps);

// streams'[k] = post[k] * y + sum over j of comb[j, k] * streams[j]. y: [N, d].
torch::Tensor WriteStreams(const torch::Tensor& streams, const torch::Tensor& y,
                           const torch::Tensor& post, const torch::Tensor& comb);

}  // namespace minke::train
