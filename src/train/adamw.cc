#include "train/adamw.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "core/result.h"

namespace minke::train {

void AdamWStep(const AdamSettings& settings, std::span<const float> gradient,
               std::span<float> first, std::span<float> second, std::span<float> value) {
  const size_t count = value.size();
  CHECK(gradient.size() == count && first.size() == count && second.size() == count);
  const auto steps = static_cast<double>(settings.steps);
  const auto beta1 = static_cast<float>(kAdamBeta1);
  const auto beta2 = static_cast<float>(kAdamBeta2);
  const auto rest1 = static_cast<float>(1 - kAdamBeta1);
  const auto rest2 = static_cast<float>(1 - kAdamBeta2);
  // value -= rate * (m / c1) / (sqrt(v / c2) + eps), with both corrections outside the loop.
  const auto step = static_cast<float>(settings.rate / (1 - std::pow(kAdamBeta1, steps)));
  const auto root = static_cast<float>(1 / std::sqrt(1 - std::pow(kAdamBeta2, steps)));
  const auto epsilon = static_cast<float>(kAdamEpsilon);
  const auto keep = static_cast<float>(1 - settings.rate * kAdamWeightDecay);
  const auto factor = static_cast<float>(settings.gradient_factor);
  const float* const g = gradient.data();
  float* const m = first.data();
  float* const v = second.data();
  float* const p = value.data();
  for (size_t i = 0; i < count; ++i) {
    const float clipped = g[i] * factor;
    m[i] = beta1 * m[i] + rest1 * clipped;
    v[i] = beta2 * v[i] + rest2 * clipped * clipped;
    p[i] = p[i] * keep - step * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
}

double SumOfSquares(std::span<const float> values) {
  // Lanes, so that the sum of doubles does not wait for each addition.
  constexpr size_t kLanes = 8;
  std::array<double, kLanes> sums = {};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (size_t i = whole; i < values.size(); ++i) {
    const double value = values[i];
    sums[i - whole] += value * value;
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace minke::train
