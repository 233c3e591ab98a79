// The mixture of experts (architecture.md 7) as one differentiable function: router, gather by
// expert, products, scatter, shared expert.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace minke::train {

struct MoeTensors {
  torch::Tensor gate;  // [experts, d]
  torch::Tensor bias;  // [experts]; chooses and does not weigh: no gradient
  torch::Tensor w1;    // [experts, inner, d]
  torch::Tensor w2;    // [experts, d, inner]
  torch::Tensor w3;    // [experts, inner, d]
  torch::Tensor shared_w1;
  torch::Tensor shared_w2;
  torch::Tensor shared_w3;
};

struct MoeOptions {
  int64_t selected_count = 1;  // num_experts_per_tok
  double routed_scaling_factor = 1;
  double gate_temp = 1;
  bool norm_topk_prob = true;
  double swiglu_limit = 0;            // 0: no clamp
  bool quantize_activations = false;  // Q8 before w1, w3 and w2
};

// x: [N, d]. loads: float64 [experts], tokens of each expert are added; undefined: not wanted.
torch::Tensor Moe(const torch::Tensor& x, const MoeTensors& tensors, const MoeOptions& options,
                  const torch::Tensor& loads);

}  // namespace minke::train
