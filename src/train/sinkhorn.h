// Coefficients of a hyper-connection from its mixes, and their gradient (architecture.md 3.2):
// sigmoids for pre and post, Sinkhorn for comb. Eight tokens at a time, one a lane.
#pragma once

#include <cstdint>

namespace minke::train {

// n = hc_mult; M = (2 + n) * n coefficients a token: n of pre, n of post, n * n of comb.
struct MixParameters {
  int64_t hc_mult = 1;
  int64_t iterations = 1;        // hc_sinkhorn_iters, at least 1
  float eps = 0.0f;              // hc_eps
  const float* base = nullptr;   // [M]
  const float* scale = nullptr;  // [3]: of pre, post, comb
};

// mixes: [tokens, M]; pre, post: [tokens, n]; comb: [tokens, n * n], source-major.
void MixCoefficients(const MixParameters& parameters, const float* mixes, int64_t tokens,
                     float* pre, float* post, float* comb);

// dpre, dpost, dcomb as above -> dmixes [tokens, M] (overwritten), dbase [M] and dscale [3] (added
// to). Runs the forward iterations again instead of keeping them.
void MixCoefficientsBackward(const MixParameters& parameters, const float* mixes, int64_t tokens,
                             const float* dpre, const float* dpost, const float* dcomb,
                             float* dmixes, float* dbase, float* dscale);

}  // namespace minke::train
