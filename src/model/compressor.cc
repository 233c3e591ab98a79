// Compressor of a kv source (architecture.md 4.3, 4.8): r tokens become one latent. A group is
// emitted by the call that processes its last token; the tokens of an open group wait in the
// sequence state.
#include <array>
#include <cstring>

#include "model/layers.h"

namespace minke {

namespace {

constexpr int64_t kRatioMax = 2;

// Fills sequence, group and positions for every group completed by this call.
Latents AllocateLatents(StepContext& step, int64_t ratio) {
  int64_t count = 0;
  for (const SequenceSpan& sequence : step.sequences) {
    count += (sequence.start + sequence.count) / ratio - sequence.start / ratio;
  }
  Latents latents{step.arena.Allocate<float>(count, step.config.head_dim),
                  step.arena.AllocateSpan<int32_t>(count), step.arena.AllocateSpan<int64_t>(count),
                  step.arena.AllocateSpan<int64_t>(count)};
  size_t next = 0;
  for (size_t index = 0; index < step.sequences.size(); ++index) {
    const SequenceSpan& sequence = step.sequences[index];
    const int64_t end = (sequence.start + sequence.count) / ratio;
    for (int64_t group = sequence.start / ratio; group < end; ++group, ++next) {
      latents.sequence[next] = static_cast<int32_t>(index);
      latents.group[next] = group;
      latents.positions[next] = group * ratio;
    }
  }
  return latents;
}

// Keeps kv and gate of the new tokens behind those of the open group, in float32.
void StorePending(StepContext& step, int64_t source, const CompressorWeights& weights,
                  View<const float> x) {
  for (const SequenceSpan& sequence : step.sequences) {
    SequenceState& state = *sequence.state;
    const int64_t open = state.open_tokens(source);
    const View<const float> rows = x.Rows(sequence.first_row, sequence.count);
    LinearF32(step, weights.wkv, rows, state.PendingKv(source).Rows(open, sequence.count));
    LinearF32(step, weights.wgate, rows, state.PendingGate(source).Rows(open, sequence.count));
  }
}

// Pools every completed group per channel (4.3); the pooled rows are bf16 before their norm.
void PoolGroups(StepContext& step, int64_t source, int64_t ratio, const Latents& latents) {
  step.pool.ParallelFor(
      latents.rows.rows, step.RowGrain(latents.rows.cols),
      [&](int64_t begin, int64_t end, int /*worker*/) {
        for (int64_t row = begin; row < end; ++row) {
          const auto index = static_cast<size_t>(row);
          const SequenceSpan& sequence =
              step.sequences[static_cast<size_t>(latents.sequence[index])];
          const View<float> kv = sequence.state->PendingKv(source);
          const View<float> gate = sequence.state->PendingGate(source);
          const int64_t first = (latents.group[index] - sequence.start / ratio) * ratio;
          std::array<const float*, kRatioMax> kv_rows{};
          std::array<const float*, kRatioMax> gate_rows{};
          for (int64_t token = 0; token < ratio; ++token) {
            kv_rows[static_cast<size_t>(token)] = kv.Row(first + token);
            gate_rows[static_cast<size_t>(token)] = gate.Row(first + token);
          }
          const auto count = static_cast<size_t>(ratio);
          step.kernels.compressor_pool(
              {kv_rows.data(), count}, {gate_rows.data(), count}, step.numerics.round_activations,
              {latents.rows.Row(row), static_cast<size_t>(latents.rows.cols)});
        }
      });
}

}  // namespace

Latents Compress(StepContext& step, int64_t layer, const CompressorWeights& weights,
                 View<const float> x) {
  const LayerRole& role = step.config.layers[static_cast<size_t>(layer)];
  CHECK(role.compress_ratio >= 1 && role.compress_ratio <= kRatioMax);
  Latents latents = AllocateLatents(step, role.compress_ratio);
  if (role.compress_ratio == 1) {
    Linear(step, weights.wkv, x, latents.rows);  // rows of x and groups are the same list
  } else {
    StorePending(step, role.kv_source_index, weights, x);
    PoolGroups(step, role.kv_source_index, role.compress_ratio, latents);
  }
  if (latents.rows.rows > 0) Norm(step, weights.norm, latents.rows, latents.rows);
  step.Dump("latent", layer, latents.rows);
  return latents;
}

void PublishCompressedRows(StepContext& step, int64_t layer, const Latents& latents) {
  ArenaScope scope(step.arena);
  const LayerRole& role = step.config.layers[static_cast<size_t>(layer)];
  const int64_t head_dim = step.config.head_dim;
  const int64_t count = latents.rows.rows;
  if (count == 0) return;
  View<float> rows = step.arena.Allocate<float>(count, head_dim);
  std::memcpy(rows.data, latents.rows.data, static_cast<size_t>(count * head_dim) * sizeof(float));
  Rope(step, role.compress_ratio, rows, head_dim, latents.positions, /*inverse=*/false);
  step.Dump("comp_kv_prequant", layer, rows);
  step.pool.ParallelFor(
      count, step.RowGrain(head_dim), [&](int64_t begin, int64_t end, int /*worker*/) {
        for (int64_t row = begin; row < end; ++row) {
          const auto index = static_cast<size_t>(row);
          SequenceState& state =
              *step.sequences[static_cast<size_t>(latents.sequence[index])].state;
          if (!state.WritesRow(role.kv_source_index, latents.group[index])) continue;
          EncodeRow(state.layout().compressed_format,
                    {rows.Row(row), static_cast<size_t>(head_dim)},
                    {state.CompressedRow(role.kv_source_index, latents.group[index]),
                     static_cast<size_t>(state.layout().compressed_row_bytes)});
        }
      });
}

}  // namespace minke
