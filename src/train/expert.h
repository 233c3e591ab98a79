// One SwiGLU expert over a block of rows (architecture.md 7.2). No libtorch.
#pragma once

#include <cstdint>

namespace minke::train {

struct ExpertShape {
  int64_t d = 0;
  int64_t inner = 0;
  float limit = 0;        // swiglu_limit; 0: no clamp
  bool quantize = false;  // Q8 on h
};
struct ExpertMatrices {
  const float* w1 = nullptr;  // [inner, d]
  const float* w2 = nullptr;  // [d, inner]
  const float* w3 = nullptr;  // [inner, d]
};
struct ExpertGradients {  // overwritten
  float* w1 = nullptr;
  float* w2 = nullptr;
  float* w3 = nullptr;
};
// a = w1 x, b = w3 x, h = weight * silu(min(a, limit)) * clamp(b, limit): each [rows, inner].
struct ExpertActivations {
  float* a = nullptr;
  float* b = nullptr;
  float* h = nullptr;
};

// y = w2 h. x, y: [rows, d]; weights: [rows], or null for ones.
void ExpertForward(const ExpertShape& shape, const ExpertMatrices& matrices, const float* x,
                   int64_t rows, const float* weights, const ExpertActivations& activations,
                   float* y);

// dx (overwritten): [rows, d]; dweights (overwritten): [rows], or null without weights.
void ExpertBackward(const ExpertShape& shape, const ExpertMatrices& matrices, const float* x,
                    int64_t rows, const float* weights, const ExpertActivations& activations,
                    const float* dy, const ExpertGradients& gradients, float* dx, float* dweights);

}  // namespace minke::train
