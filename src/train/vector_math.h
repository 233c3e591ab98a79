// Scalar functions in a form that compilers turn into vector code inside plain loops: no branch, no
// call.
#pragma once

#include <bit>
#include <cstdint>

namespace minke::train {

// e^x within 2 units in the last place; below -87 the smallest normal number's size.
inline float VectorExp(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  constexpr float kLog2E = 1.44269504088896f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kShift = 0x1.8p23f;  // adding it rounds to a whole number
  const float shifted = x * kLog2E + kShift;
  const float n = shifted - kShift;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // n stands in the low bits of `shifted`; 127 + n is the exponent of 2^n.
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) + 127u) << 23;
  return p * std::bit_cast<float>(power);
}

inline float VectorSigmoid(float x) {
  return 1.0f / (1.0f + VectorExp(-x));
}

// Sum of a[i] * b[i], in whatever order is fast.
inline float FastDot(const float* a, const float* b, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor * x.
inline void AddScaled(float factor, const float* x, int64_t n, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace minke::train
