// Sliding-window KV of every layer (architecture.md 4.2): one vector per token serves as key and
// value of all heads, quantized over all of its channels. New rows stay with the running call
// until they are committed; the ring itself is in state.cc.
#include "model/layers.h"

namespace minke {

void WindowKv(StepContext& step, int64_t layer, const AttentionWeights& weights,
              View<const float> x) {
  ArenaScope scope(step.arena);
  const int64_t head_dim = step.config.head_dim;
  View<float> k = step.arena.Allocate<float>(x.rows, head_dim);
  Linear(step, weights.wkv, x, k);
  Norm(step, weights.kv_norm, k, k);
  Rope(step, step.config.layers[static_cast<size_t>(layer)].compress_ratio, k, head_dim,
       step.positions, /*inverse=*/false);
  for (const SequenceSpan& sequence : step.sequences) {
    const StateLayout& layout = sequence.state->layout();
    const int64_t first_pending = sequence.start - sequence.state->length();
    step.pool.ParallelFor(
        sequence.count, step.RowGrain(head_dim), [&](int64_t begin, int64_t end, int /*worker*/) {
          for (int64_t row = begin; row < end; ++row) {
            EncodeRow(layout.window_format,
                      {k.Row(sequence.first_row + row), static_cast<size_t>(head_dim)},
                      {sequence.state->PendingWindowRow(layer, first_pending + row),
                       static_cast<size_t>(layout.window_row_bytes)});
          }
        });
  }
}

}  // namespace minke
