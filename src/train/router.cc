#include "train/router.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "kernels/kernels.h"
#include "train/vector_math.h"

namespace minke::train {

namespace {

constexpr float kLinearFrom = 20.0f;  // softplus is its argument from here on (7.1)
constexpr float kSumFloor = 1e-20f;

float Score(float z) {
  return std::sqrt(z > kLinearFrom ? z : std::log1p(std::exp(z)));
}

}  // namespace

void RouteTokens(const RouterOptions& options, const float* logits, const float* bias,
                 int64_t tokens, int64_t expert_count, int32_t* experts, float* scores,
                 float* weights) {
  const int64_t k = options.selected_count;
  const RouterParameters parameters{.selected_count = k,
                                    .routed_scaling_factor = options.routed_scaling_factor,
                                    .gate_temp = options.gate_temp,
                                    .norm_topk_prob = options.norm_topk_prob};
  const auto select = FastKernels().router_select;
  for (int64_t t = 0; t < tokens; ++t) {
    const std::span<const float> row{logits + t * expert_count, static_cast<size_t>(expert_count)};
    select(row, {bias, row.size()}, parameters, {experts + t * k, static_cast<size_t>(k)},
           {weights + t * k, static_cast<size_t>(k)});
    for (int64_t i = t * k; i < (t + 1) * k; ++i) {
      scores[i] = Score(row[static_cast<size_t>(experts[i])] / options.gate_temp);
    }
  }
}

void RouteTokensBackward(const RouterOptions& options, const float* logits, const int32_t* experts,
                         const float* scores, const float* dweights, int64_t tokens,
                         int64_t expert_count, float* dlogits) {
  const int64_t k = options.selected_count;
  const bool normed = options.norm_topk_prob && k > 1;
  for (int64_t t = 0; t < tokens; ++t) {
    const float* s = scores + t * k;
    const float* g = dweights + t * k;
    float sum = kSumFloor;
    float projection = 0.0f;
    for (int64_t i = 0; i < k; ++i) {
      sum += s[i];
      projection += g[i] * s[i];
    }
    for (int64_t i = 0; i < k; ++i) {
      float ds = g[i] * options.routed_scaling_factor;
      if (normed) ds = options.routed_scaling_factor * (g[i] - projection / sum) / sum;
      const int64_t at = t * expert_count + experts[t * k + i];
      const float z = logits[at] / options.gate_temp;
      const float slope = z > kLinearFrom ? 1.0f : VectorSigmoid(z);
      dlogits[at] = ds * slope / (2.0f * s[i]) / options.gate_temp;
    }
  }
}

}  // namespace minke::train
