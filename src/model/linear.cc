#include "model/layers.h"

namespace minke {

void LinearF32(StepContext& step, const Weight& weight, View<const float> x, View<float> y) {
  step.kernels.matmul(x, weight, y, step.pool);
}

void LinearNoQ8(StepContext& step, const Weight& weight, View<const float> x, View<float> y) {
  LinearF32(step, weight, x, y);
  if (step.numerics.round_activations) step.kernels.round_bf16(y, step.pool);
}

void Linear(StepContext& step, const Weight& weight, View<const float> x, View<float> y) {
  const bool block_scaled =
      weight.format == WeightFormat::kFp8Tile32 || weight.format == WeightFormat::kFp4Group32;
  if (!block_scaled || !step.numerics.quantize_gemm_input) return LinearNoQ8(step, weight, x, y);
  ArenaScope scope(step.arena);
  View<float> quantized = step.arena.Allocate<float>(x.rows, x.cols);
  step.kernels.quantize_q8(x, quantized, step.pool);
  LinearNoQ8(step, weight, quantized, y);
}

void Norm(StepContext& step, std::span<const uint16_t> weight, View<const float> x, View<float> y) {
  step.kernels.rms_norm(x, weight, static_cast<float>(step.config.rms_norm_eps),
                        step.numerics.round_activations, y, step.pool);
}

void Rope(StepContext& step, int64_t ratio, View<float> x, int64_t head_dim,
          std::span<const int64_t> positions, bool inverse) {
  const RopeTable table{ratio == 0 ? step.tables.window_frequencies
                                   : step.tables.compressed_frequencies};
  step.kernels.rope(x, head_dim, positions, table, inverse, step.numerics.round_activations,
                    step.pool);
}

}  // namespace minke
