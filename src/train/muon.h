// Muon: momentum whose update is made orthogonal, for matrices (docs/nano.md). The size of an
// update does not depend on that of the gradient.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace minke::train {

inline constexpr double kMuonMomentum = 0.95;  // with Nesterov's look ahead
inline constexpr int kNewtonSchulzSteps = 5;

// The orthogonal factor of every matrix, about: singular values end up between 0.7 and 1.2.
// matrices: [n, out, in] float32; a matrix of zeros stays one.
torch::Tensor Orthogonalized(const torch::Tensor& matrices);

// sqrt(max(1, out / in)): keeps the size of what a matrix adds to its output alike over shapes.
double MuonScale(int64_t out, int64_t in);

}  // namespace minke::train
