// AdamW in one pass over memory: three million Engram values cost as much as reading them.
#pragma once

#include <cstdint>
#include <span>

namespace minke::train {

struct AdamSettings {
  double rate = 0;
  double gradient_factor = 1;  // from clipping
  int64_t steps = 1;           // with this one, of this parameter
};
inline constexpr double kAdamBeta1 = 0.9;
inline constexpr double kAdamBeta2 = 0.95;
inline constexpr double kAdamEpsilon = 1e-8;
inline constexpr double kAdamWeightDecay = 0.01;
inline constexpr double kAdamClipNorm = 1.0;  // of the gradients of all AdamW parameters together

// All spans have the same size.
void AdamWStep(const AdamSettings& settings, std::span<const float> gradient,
               std::span<float> first, std::span<float> second, std::span<float> value);

// In double, in one fixed order.
double SumOfSquares(std::span<const float> values);

}  // namespace minke::train
