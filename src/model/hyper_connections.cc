// Single-pass mHC: coefficients of one sublayer (architecture.md 3.2). Collapse and expand (3.3)
// are kernels; which mix is used where (3.4) is to be read in forward.cc.
#include "model/layers.h"

namespace minke {

Mixes AllocateMixes(StepContext& step) {
  const int64_t hc_mult = step.config.hc_mult;
  return Mixes{step.arena.Allocate<float>(step.row_count, hc_mult),
               step.arena.Allocate<float>(step.row_count, hc_mult),
               step.arena.Allocate<float>(step.row_count, hc_mult * hc_mult)};
}

void HyperConnectionMix(StepContext& step, const HyperConnectionWeights& weights,
                        View<const float> streams, Mixes& mixes) {
  step.kernels.hc_mix(streams, weights.fn, weights.base, weights.scale,
                      step.config.hc_sinkhorn_iters, static_cast<float>(step.config.rms_norm_eps),
                      static_cast<float>(step.config.hc_eps), mixes.pre, mixes.post, mixes.comb,
                      step.pool);
}

}  // namespace minke
