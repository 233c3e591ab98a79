#include "train/expert.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "train/gemm.h"
#include "train/row_rounding.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

float Limit(const ExpertShape& shape) {
  return shape.limit > 0.0f ? shape.limit : std::numeric_limits<float>::max();
}

}  // namespace

void ExpertForward(const ExpertShape& shape, const ExpertMatrices& matrices, const float* x,
                   int64_t rows, const float* weights, const ExpertActivations& activations,
                   float* y) {
  const int64_t d = shape.d;
  const int64_t inner = shape.inner;
  const float limit = Limit(shape);
  GemmNt(rows, inner, d, {x, d}, {matrices.w1, d}, 0.0f, {activations.a, inner});
  GemmNt(rows, inner, d, {x, d}, {matrices.w3, d}, 0.0f, {activations.b, inner});
  for (int64_t row = 0; row < rows; ++row) {
    const float weight = weights == nullptr ? 1.0f : weights[row];
    const float* a = activations.a + row * inner;
    const float* b = activations.b + row * inner;
    float* h = activations.h + row * inner;
#pragma omp simd
    for (int64_t i = 0; i < inner; ++i) {
      const float gate = a[i] < limit ? a[i] : limit;
      float up = b[i] < limit ? b[i] : limit;
      up = up > -limit ? up : -limit;
      h[i] = weight * (gate * VectorSigmoid(gate) * up);
    }
  }
  if (shape.quantize) {
    RoundRows(RowRounding::kFp8Group32, activations.h, rows, inner, activations.h);
  }
  GemmNt(rows, d, inner, {activations.h, inner}, {matrices.w2, inner}, 0.0f, {y, d});
}

void ExpertBackward(const ExpertShape& shape, const ExpertMatrices& matrices, const float* x,
                    int64_t rows, const float* weights, const ExpertActivations& activations,
                    const float* dy, const ExpertGradients& gradients, float* dx, float* dweights) {
  if (rows == 0) return;
  const int64_t d = shape.d;
  const int64_t inner = shape.inner;
  const float limit = Limit(shape);
  std::vector<float> da(static_cast<size_t>(rows * inner));
  std::vector<float> db(static_cast<size_t>(rows * inner));
  GemmNn(rows, inner, d, {dy, d}, {matrices.w2, inner}, 0.0f, {da.data(), inner});
  GemmTn(d, inner, rows, {dy, d}, {activations.h, inner}, 0.0f, {gradients.w2, inner});
  for (int64_t row = 0; row < rows; ++row) {
    const float weight = weights == nullptr ? 1.0f : weights[row];
    const float* a = activations.a + row * inner;
    const float* b = activations.b + row * inner;
    float* dgate = da.data() + row * inner;  // holds dh
    float* dup = db.data() + row * inner;
    float dweight = 0.0f;
#pragma omp simd reduction(+ : dweight)
    for (int64_t i = 0; i < inner; ++i) {
      const float gate = a[i] < limit ? a[i] : limit;
      float up = b[i] < limit ? b[i] : limit;
      up = up > -limit ? up : -limit;
      const float sigmoid = VectorSigmoid(gate);
      const float silu = gate * sigmoid;
      dweight += dgate[i] * (silu * up);
      const float dunit = dgate[i] * weight;
      dup[i] = up == b[i] ? dunit * silu : 0.0f;
      dgate[i] = gate == a[i] ? dunit * up * (sigmoid + silu * (1.0f - sigmoid)) : 0.0f;
    }
    if (dweights != nullptr) dweights[row] = dweight;
  }
  GemmNn(rows, d, inner, {da.data(), inner}, {matrices.w1, d}, 0.0f, {dx, d});
  GemmNn(rows, d, inner, {db.data(), inner}, {matrices.w3, d}, 1.0f, {dx, d});
  GemmTn(inner, d, rows, {da.data(), inner}, {x, d}, 0.0f, {gradients.w1, d});
  GemmTn(inner, d, rows, {db.data(), inner}, {x, d}, 0.0f, {gradients.w3, d});
}

}  // namespace minke::train
