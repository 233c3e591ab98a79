// Every mechanism of the model: what goes in, what comes out, its section of architecture.md.
// T = rows of this call over all sequences, d = hidden_size, H = hc_mult. Activations are float32
// views whose values are bf16 in official numerics.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/numerics.h"
#include "model/state.h"
#include "model/weights.h"

namespace minke {

class WeightStream;

// Rows of one sequence inside a call: rows [first_row, first_row + count) of every activation, at
// positions from `start` on. Below the split layer that is state->length(); above it, later where
// tokens were skipped (6.2).
struct SequenceSpan {
  SequenceState* state = nullptr;
  int64_t first_row = 0;
  int64_t count = 0;
  int64_t start = 0;  // position of the first row
};

// Looks into a running forward, and may replace selections. For tests and `minke logits --dump`.
struct Diagnostics {
  std::function<void(std::string_view name, int64_t layer, View<const float> values)> tensor;
  std::function<void(std::string_view name, int64_t layer, View<const int32_t> values)> indices;
  std::function<void(int64_t layer, View<const int64_t> rows)> engram_rows;
  // May overwrite the selection of one row (position within its sequence).
  std::function<void(int64_t layer, int64_t position, std::span<int32_t> rows)> force_topk;
  std::function<void(int64_t layer, int64_t position, std::span<int32_t> experts)> force_experts;
  // Layers that need scores of the candidate pool only compute all of them, for `tensor` to see.
  bool all_index_scores = true;
};

// Constants of a loaded model that mechanisms read; immutable after loading.
struct ModelTables {
  std::vector<float> window_frequencies;      // ratio-0 layers (0.6)
  std::vector<float> compressed_frequencies;  // ratio-1 and -2 layers
  std::vector<int32_t> engram_token_map;      // token id -> compressed id (8.1)
  struct EngramHash {
    std::vector<int64_t> multipliers;  // [max_ngram]
    std::vector<int64_t> primes;       // [columns]
    std::vector<int64_t> offsets;      // [columns]
  };
  std::vector<EngramHash> engram;  // per Engram layer (8.2)
  int32_t engram_pad = 0;          // compressed id of engram_pad_token_id
};

// What every mechanism of one call shares. Lives on the caller's stack; nothing is global.
struct StepContext {
  const ModelConfig& config;
  const ModelTables& tables;
  const Numerics& numerics;
  const Kernels& kernels;
  ThreadPool& pool;
  Arena& arena;
  const Diagnostics* diagnostics = nullptr;

  std::span<const SequenceSpan> sequences;
  std::span<const int64_t> positions;  // [T]
  int64_t row_count = 0;               // T

  // Flows down the layers of one forward (4.9): the latest index source's selection [T,
  // index_topk], -1 in unused slots, and the candidate source's pool [T, blocks of the longest
  // sequence], 1 where a block of rows is kept.
  View<int32_t> selected;
  View<uint8_t> candidates;

  // Where experts and Engram rows come from; null: they are in memory, and the weights' pointers
  // are theirs. With it, the next layer's experts, whose likely ones are read ahead; null at the
  // last layer.
  WeightStream* stream = nullptr;
  const MoeWeights* next_moe = nullptr;

  // Compressed rows of ratio r that the token of this row sees (4.5).
  int64_t VisibleRows(int64_t row, int64_t ratio) const {
    return (positions[static_cast<size_t>(row)] + 1) / ratio;
  }
  // Rows per share of a loop that works value by value over `values_per_row` values.
  int64_t RowGrain(int64_t values_per_row) const { return pool.GrainFor(8 * values_per_row); }
  void Dump(std::string_view name, int64_t layer, View<const float> values) const {
    if (diagnostics != nullptr && diagnostics->tensor) diagnostics->tensor(name, layer, values);
  }
  void Dump(std::string_view name, int64_t layer, View<const int32_t> values) const {
    if (diagnostics != nullptr && diagnostics->indices) diagnostics->indices(name, layer, values);
  }
};

// ---- hyper_connections.cc (3.2-3.4) ----
struct Mixes {
  View<float> pre;   // [T, H]
  View<float> post;  // [T, H]
  View<float> comb;  // [T, H * H], source-major
};
Mixes AllocateMixes(StepContext& step);
void HyperConnectionMix(StepContext& step, const HyperConnectionWeights& weights,
                        View<const float> streams, Mixes& mixes);

// ---- linear.cc (0.4) ----
// y = x W^T, bf16. x: [T, in]; y: [T, out]. Linear puts Q8 on x for FP8 and FP4 weights;
// LinearNoQ8 does not (wo_a); LinearF32 neither does that nor rounds y.
void Linear(StepContext& step, const Weight& weight, View<const float> x, View<float> y);
void LinearNoQ8(StepContext& step, const Weight& weight, View<const float> x, View<float> y);
void LinearF32(StepContext& step, const Weight& weight, View<const float> x, View<float> y);
// RMSNorm with the config's eps and the step's rounding (0.5). x, y: [rows, n], may be the same.
void Norm(StepContext& step, std::span<const uint16_t> weight, View<const float> x, View<float> y);
// Rotation of the last qk_rope_head_dim channels of every head by the table of the layer's ratio.
void Rope(StepContext& step, int64_t ratio, View<float> x, int64_t head_dim,
          std::span<const int64_t> positions, bool inverse);

// ---- rope_tables.cc (0.6): inverse frequencies [qk_rope_head_dim / 2] ----
std::vector<float> WindowFrequencies(const ModelConfig& config);
std::vector<float> CompressedFrequencies(const ModelConfig& config);

// ---- window_kv.cc (4.2) ----
// x: [T, d]; writes the new rows of layer `layer` into every sequence's pending window rows.
void WindowKv(StepContext& step, int64_t layer, const AttentionWeights& weights,
              View<const float> x);

// ---- compressor.cc (4.3, 4.8) ----
// Latents of the groups completed by this call, over all sequences in order; row_sequence and
// group_index say whose they are. Before RoPE and quantization.
struct Latents {
  View<float> rows;              // [G, head_dim]
  std::span<int32_t> sequence;   // [G] index into step.sequences
  std::span<int64_t> group;      // [G] row index in the source's cache
  std::span<int64_t> positions;  // [G] group * ratio
};
Latents Compress(StepContext& step, int64_t layer, const CompressorWeights& weights,
                 View<const float> x);
// RoPE at group * ratio, then Q4K into the caches.
void PublishCompressedRows(StepContext& step, int64_t layer, const Latents& latents);

// ---- indexer.cc (4.4-4.6) ----
void WriteIndexKeys(StepContext& step, int64_t layer, const IndexerWeights& weights,
                    const Latents& latents);
// Scores, candidate pool and top-k of an index source; fills step.selected. query_latent: [T,
// q_lora_rank] (qr of 4.1); x: [T, d].
void SelectRows(StepContext& step, int64_t layer, const IndexerWeights& weights,
                View<const float> query_latent, View<const float> x);

// ---- attention.cc (4.1, 4.7) ----
// What the rows leave behind in their sequences: window rows, and at a kv source compressed rows
// and index keys. x: [T, d] normed.
void AttentionState(StepContext& step, int64_t layer, const AttentionWeights& weights,
                    View<const float> x);
// What the rows read, after AttentionState() of the same layer. y: [T, d].
void Attention(StepContext& step, int64_t layer, const AttentionWeights& weights,
               View<const float> x, View<float> y);

// ---- moe.cc (7) ----
// Errors: with a stream, the disk's.
Status Moe(StepContext& step, int64_t layer, const MoeWeights& weights, View<const float> x,
           View<float> y);

// ---- engram.cc (8) ----
// Rows of every column of a table; their sum is its entry of engram_num_embeddings (8.2).
std::vector<int64_t> EngramPrimes(const ModelConfig& config, int64_t engram_index);
Result<ModelTables::EngramHash> MakeEngramHash(const ModelConfig& config, int64_t engram_index);
// Row ids of every column for the tokens of one sequence. history: history_length older
// compressed ids and then the tokens; rows: [tokens, columns].
void EngramRows(const ModelTables& tables, const ModelTables::EngramHash& hash,
                std::span<const int32_t> history_and_tokens, int64_t history_length,
                int64_t head_count, View<int64_t> rows);
// Begins to read the rows of all Engram layers, which depend on token ids alone.
void PrefetchEngram(StepContext& step, const ModelWeights& weights);
// Errors: with a stream, the disk's.
Status Engram(StepContext& step, int64_t layer, const EngramWeights& weights, View<float> streams);

}  // namespace minke
