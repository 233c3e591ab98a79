// The router of the mixture of experts (architecture.md 7.1) and its gradient. No libtorch.
#pragma once

#include <cstdint>

namespace minke::train {

struct RouterOptions {
  int64_t selected_count = 1;
  float routed_scaling_factor = 1;
  float gate_temp = 1;
  bool norm_topk_prob = true;
};

// logits: [tokens, experts]; bias: [experts]. experts, scores, weights: [tokens, selected_count],
// best first; scores are sqrt(softplus(logit / temp)).
void RouteTokens(const RouterOptions& options, const float* logits, const float* bias,
                 int64_t tokens, int64_t expert_count, int32_t* experts, float* scores,
                 float* weights);

// dlogits (must be zero where no expert was taken): [tokens, experts].
void RouteTokensBackward(const RouterOptions& options, const float* logits, const int32_t* experts,
                         const float* scores, const float* dweights, int64_t tokens,
                         int64_t expert_count, float* dlogits);

}  // namespace minke::train
