// The CSA2 attention block (architecture.md 4.1, 4.6-4.8): query, window rows, selected compressed
// rows, sink, inverse rotation, grouped output projection.
#include <algorithm>
#include <cmath>

#include "model/layers.h"

namespace minke {

namespace {

// The canonical index list (4.6), as pointers to packed rows: sliding_window slots, valid
// positions ascending and then empty ones; compressed rows from slot sliding_window on.
// DEVIATION: the reference's list is shorter for one-shot prompts below the window and puts the
// empty slots first while its decode ring fills. One layout for every call makes any cutting of a
// prompt give the same bits; only the rounding of probabilities differs.
View<const std::byte*> ListSlots(StepContext& step, int64_t layer, const LayerRole& role) {
  const int64_t window = step.config.sliding_window;
  const int64_t topk = role.compress_ratio == 0 ? 0 : step.config.index_topk;
  View<const std::byte*> slots =
      step.arena.Allocate<const std::byte*>(step.row_count, window + topk);
  for (const SequenceSpan& sequence : step.sequences) {
    const SequenceState& state = *sequence.state;
    step.pool.ParallelFor(
        sequence.count, step.RowGrain(slots.cols), [&](int64_t begin, int64_t end, int /*worker*/) {
          for (int64_t row = begin; row < end; ++row) {
            const std::byte** list = slots.Row(sequence.first_row + row);
            std::fill_n(list, slots.cols, nullptr);
            const int64_t position = sequence.start + row;
            const int64_t oldest = std::max(state.window_begin(layer), position - window + 1);
            for (int64_t p = oldest; p <= position; ++p) {
              list[p - oldest] = state.VisibleWindowRow(layer, p);
            }
            const int32_t* selected =
                topk == 0 ? nullptr : step.selected.Row(sequence.first_row + row);
            for (int64_t i = 0; i < topk && selected[i] >= 0; ++i) {
              list[window + i] = state.CompressedRow(role.kv_source_index, selected[i]);
            }
          }
        });
  }
  return slots;
}

// o [T, heads * head_dim] -> y [T, d] through the grouped wo_a (bf16 product, no Q8) and wo_b.
void OutputProjection(StepContext& step, const AttentionWeights& weights, View<const float> o,
                      View<float> y) {
  ArenaScope scope(step.arena);
  const ModelConfig& config = step.config;
  const int64_t group_cols = config.num_attention_heads / config.o_groups * config.head_dim;
  View<float> z = step.arena.Allocate<float>(o.rows, config.o_groups * config.o_lora_rank);
  for (int64_t group = 0; group < config.o_groups; ++group) {
    const int64_t first = group * config.o_lora_rank;
    LinearNoQ8(step, weights.wo_a.Rows(first, config.o_lora_rank),
               o.Cols(group * group_cols, group_cols), z.Cols(first, config.o_lora_rank));
  }
  Linear(step, weights.wo_b, z, y);
}

}  // namespace

// Index keys are made from the latent as it is; only then is it rotated and quantized (4.8).
void AttentionState(StepContext& step, int64_t layer, const AttentionWeights& weights,
                    View<const float> x) {
  ArenaScope scope(step.arena);
  WindowKv(step, layer, weights, x);
  if (step.config.layers[static_cast<size_t>(layer)].mode != LayerMode::kFull) return;
  const Latents latents = Compress(step, layer, weights.compressor, x);
  WriteIndexKeys(step, layer, weights.indexer, latents);
  PublishCompressedRows(step, layer, latents);
}

void Attention(StepContext& step, int64_t layer, const AttentionWeights& weights,
               View<const float> x, View<float> y) {
  ArenaScope scope(step.arena);
  const ModelConfig& config = step.config;
  const LayerRole& role = config.layers[static_cast<size_t>(layer)];
  const int64_t heads = config.num_attention_heads;

  View<float> query_latent = step.arena.Allocate<float>(x.rows, config.q_lora_rank);
  Linear(step, weights.wq_a, x, query_latent);
  Norm(step, weights.q_norm, query_latent, query_latent);
  View<float> q = step.arena.Allocate<float>(x.rows, heads * config.head_dim);
  Linear(step, weights.wq_b, query_latent, q);
  Rope(step, role.compress_ratio, q, config.head_dim, step.positions, /*inverse=*/false);

  if (role.mode == LayerMode::kFull || role.mode == LayerMode::kReindex) {
    SelectRows(step, layer, weights.indexer, query_latent, x);
  }

  const View<const std::byte*> slots = ListSlots(step, layer, role);
  const StateLayout& state_layout = step.sequences.front().state->layout();
  const AttentionLayout layout{.head_count = heads,
                               .head_dim = config.head_dim,
                               .window_slots = config.sliding_window,
                               .window_format = state_layout.window_format,
                               .compressed_format = state_layout.compressed_format,
                               .round_probabilities = step.numerics.round_probabilities,
                               .round_output = step.numerics.round_activations};
  View<float> o = step.arena.Allocate<float>(x.rows, heads * config.head_dim);
  const auto scale = static_cast<float>(std::pow(static_cast<double>(config.head_dim), -0.5));
  step.kernels.sparse_attention(
      q, View<const std::byte* const>(slots.data, slots.rows, slots.cols, slots.stride), layout,
      weights.attn_sink, scale, o, step.pool);
  step.Dump("attn_core", layer, o);
  Rope(step, role.compress_ratio, o, config.head_dim, step.positions, /*inverse=*/true);
  OutputProjection(step, weights, o, y);
}

}  // namespace minke
