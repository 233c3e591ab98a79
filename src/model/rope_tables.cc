// Inverse frequencies of the two rotary tables (architecture.md 0.6). The arithmetic is float32
// step by step, because at a million positions the rounding of a frequency is part of the function.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/layers.h"

namespace minke {

namespace {

std::vector<float> BaseFrequencies(int64_t rope_dim, double base) {
  std::vector<float> frequencies;
  for (int64_t channel = 0; channel < rope_dim; channel += 2) {
    const float exponent = static_cast<float>(channel) / static_cast<float>(rope_dim);
    frequencies.push_back(1.0f / std::pow(static_cast<float>(base), exponent));
  }
  return frequencies;
}

// The (fractional) pair whose wavelength makes `rotations` turns over the original context.
double CorrectionPair(double rotations, int64_t rope_dim, double base, int64_t original_length) {
  return static_cast<double>(rope_dim) *
         std::log(static_cast<double>(original_length) / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(base));
}

}  // namespace

std::vector<float> WindowFrequencies(const ModelConfig& config) {
  return BaseFrequencies(config.qk_rope_head_dim, config.rope_theta);
}

std::vector<float> CompressedFrequencies(const ModelConfig& config) {
  const int64_t rope_dim = config.qk_rope_head_dim;
  const RopeScaling& scaling = config.rope_scaling;
  std::vector<float> frequencies = BaseFrequencies(rope_dim, config.compress_rope_theta);
  if (scaling.original_max_position_embeddings <= 0) return frequencies;
  const double base = config.compress_rope_theta;
  const int64_t original = scaling.original_max_position_embeddings;
  const double low =
      std::max(std::floor(CorrectionPair(scaling.beta_fast, rope_dim, base, original)), 0.0);
  double high = std::min(std::ceil(CorrectionPair(scaling.beta_slow, rope_dim, base, original)),
                         static_cast<double>(rope_dim - 1));
  if (low == high) high += 0.001;  // the reference's guard against a zero-width ramp
  for (size_t j = 0; j < frequencies.size(); ++j) {
    const float ramp = std::clamp(
        (static_cast<float>(j) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float smooth = 1.0f - ramp;
    const float scaled = frequencies[j] / static_cast<float>(scaling.factor);
    frequencies[j] = scaled * (1.0f - smooth) + frequencies[j] * smooth;
  }
  return frequencies;
}

}  // namespace minke
