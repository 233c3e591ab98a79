// Every arithmetic entry point, as one table of functions. Two tables fill it: ReferenceKernels()
// is plain scalar code written for reading (reference.cc) and FastKernels() is the SIMD version.
// They give the same bits. Kernels know no layer and no config: shapes come in as arguments.
//
// Activations are float32 in memory. Where the model's contract says bf16, the values are rounded
// to bf16 (round_bf16 = true) and merely stored in 32 bits; diagnostic modes leave the rounding
// out.
//
// Canonical sum. Every dot product and every sum of squares over n elements is eight partial sums,
// lane l taking elements l, l+8, l+16, ... in ascending order by fused multiply-add from +0, then
//   ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)).
// Products with FP4 weights have two partial sums, one of the even and one of the odd groups of 32
// inputs. The sum of a group's products is taken without its scale in float64, in ascending order,
// and rounded to float32; sum = fma(that, scale, sum) follows by ascending groups, and the even sum
// plus the odd sum is the result. For Q8 inputs the float64 sum is exact.
//
// Dots of index keys have no order either, see index_scores.
//
// Neither depends on the number of rows, threads, or the SIMD target, so batch = alone.
// (The reference sums FP8 products per block of 32, too. All scales are powers of two, so the terms
// are the same numbers; only the order of additions differs.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/numeric_formats.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace minke {

enum class WeightFormat {
  kF32,         // float [rows, cols]
  kBf16,        // uint16 [rows, cols]
  kFp8Tile32,   // E4M3 [rows, cols], UE8M0 scales [ceil(rows/32), ceil(cols/32)]
  kFp4Group32,  // E2M1 [rows, cols/2] low nibble = even column, UE8M0 scales [rows, cols/32]
};

// A weight matrix as stored in the checkpoint, [rows = outputs, cols = inputs]. Never owns.
struct Weight {
  WeightFormat format = WeightFormat::kF32;
  const std::byte* data = nullptr;
  const uint8_t* scales = nullptr;  // null for kF32 and kBf16
  int64_t rows = 0;
  int64_t cols = 0;

  // Rows [begin, begin + count). REQUIRES: for kFp8Tile32, begin is a multiple of 32.
  Weight Rows(int64_t begin, int64_t count) const;
};

// cos and sin of one rotary table row: angle = fl32(fl32(position) * inverse_frequency[j]), cos and
// sin of that float (architecture.md 0.6).
struct RopeTable {
  std::span<const float> inverse_frequencies;  // [rope_dim / 2]
};

// One query row of sparse attention (architecture.md 0.7): `slots` point at packed rows, null for
// an empty slot. The first window_slots rows have format window_format, the rest
// compressed_format; all have head_dim channels.
struct AttentionLayout {
  int64_t head_count = 0;
  int64_t head_dim = 0;
  int64_t window_slots = 0;
  RowFormat window_format = RowFormat::kFp8Group32;
  RowFormat compressed_format = RowFormat::kFp4Group16;
  bool round_probabilities = true;  // bf16 probabilities inside each block of 64
  bool round_output = true;         // bf16 output
};

// Consecutive packed index keys, and where their scores go.
struct IndexRun {
  const std::byte* keys = nullptr;
  int64_t row_count = 0;
  float* scores = nullptr;  // [row_count]
};

// Expert selection of one token (architecture.md 7.1).
struct RouterParameters {
  int64_t selected_count = 0;  // k
  float routed_scaling_factor = 1.0f;
  float gate_temp = 1.0f;
  bool norm_topk_prob = true;
};

struct Kernels {
  const char* name;

  // y[t, n] = canonical sum over i of x[t, i] * w[n, i], or that of FP4. x: [T, K]; y: [T, N]
  // float32, not rounded.
  void (*matmul)(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool);

  // values rounded to bf16 (nearest even) in place; [T, n].
  void (*round_bf16)(View<float> values, ThreadPool& pool);

  // Q8 of architecture.md 0.3: bf16(E4M3(x / s) * s) per group of 32 columns, s a power of two.
  // Input is rounded to bf16 first. x and y may be the same. [T, K], K a multiple of 32.
  void (*quantize_q8)(View<const float> x, View<float> y, ThreadPool& pool);

  // Q4I of architecture.md 0.3, in place, per group of 32 columns (indexer queries). [T, n].
  void (*quantize_q4i)(View<float> values, ThreadPool& pool);

  // y = w * (x * rsqrt(mean(x^2) + eps)), bf16 if round_bf16 (architecture.md 0.5).
  // x, y: [T, K], may be the same; weight: bf16 [K]. rsqrt is 1 / sqrt in float32.
  void (*rms_norm)(View<const float> x, std::span<const uint16_t> weight, float eps,
                   bool round_bf16, View<float> y, ThreadPool& pool);

  // Rotates the last 2 * inverse_frequencies.size() channels of every head, adjacent pairs, by
  // +angle (or -angle if inverse), in float32, then bf16 if round_bf16 (architecture.md 0.6).
  // x: [T, head_count * head_dim] in place; positions: [T].
  void (*rope)(View<float> x, int64_t head_dim, std::span<const int64_t> positions,
               const RopeTable& table, bool inverse, bool round_bf16, ThreadPool& pool);

  // mHC coefficients (architecture.md 3.2). streams: [T, hc_mult * d]; fn: F32
  // [(2 + hc_mult) * hc_mult, hc_mult * d]; base: [(2 + hc_mult) * hc_mult]; scale: [3];
  // pre, post: [T, hc_mult]; comb: [T, hc_mult * hc_mult], comb[j * hc_mult + k] = weight from
  // source stream j to target stream k. norm_eps is the 1e-20 of the statistic; hc_eps the 1e-6.
  void (*hc_mix)(View<const float> streams, const Weight& fn, std::span<const float> base,
                 std::span<const float> scale, int64_t sinkhorn_iters, float norm_eps, float hc_eps,
                 View<float> pre, View<float> post, View<float> comb, ThreadPool& pool);

  // u[i] = sum_c pre[c] * X[c, i], c ascending, fp32 multiply and add, then bf16 if round_bf16
  // (3.3). streams: [T, hc_mult * d]; pre: [T, hc_mult]; u: [T, d].
  void (*hc_collapse)(View<const float> streams, View<const float> pre, bool round_bf16,
                      View<float> u, ThreadPool& pool);

  // X'[k, i] = post[k] * y[i] + sum_j comb[j, k] * X[j, i], then bf16 if round_bf16 (3.3).
  // y: [T, d]; streams: [T, hc_mult * d] in place.
  void (*hc_expand)(View<const float> y, View<const float> post, View<const float> comb,
                    bool round_bf16, View<float> streams, ThreadPool& pool);

  // Ratio-r pooling of one group per channel (4.3): weights = softmax over the r tokens of
  // gate[., i]; pooled[i] = sum weights * kv[., i]; bf16 if round_bf16. kv, gate: r pointers to
  // [n] floats, oldest token first.
  void (*compressor_pool)(std::span<const float* const> kv, std::span<const float* const> gate,
                          bool round_bf16, std::span<float> pooled);

  // Index scores of one query against runs of packed keys (4.5):
  // S[j] = sum_h relu(q_h . k_j) * w_h. The dot is summed in float64, ascending, and rounded to
  // float32; of Q4I vectors that sum is exact. If round_bf16: the dot, each product and the sum are
  // rounded to bf16 (the sum accumulates in fp32, h ascending). queries: [heads, dim] decoded;
  // head_weights: [heads]; keys: rows of RowBytes(key_format, dim).
  void (*index_scores)(View<const float> queries, std::span<const float> head_weights,
                       RowFormat key_format, std::span<const IndexRun> runs, bool round_bf16);

  // The candidate pool of one query (4.5): 1 in kept for every kept block of block_size rows.
  // Keeps min(topk_blocks, blocks) blocks by maximal score, the block of the last row always;
  // equal scores: the lower block wins. scores: the visible rows; kept: [ceil(rows/block_size)].
  void (*select_candidates)(std::span<const float> scores, int64_t block_size, int64_t topk_blocks,
                            std::span<uint8_t> kept);

  // The min(rows, k) best rows ascending, -1 behind them; equal scores (-0 = +0): the lower row
  // wins (4.5). kept: empty, or the blocks outside of which rows do not count. Rows of score
  // -inf are never taken. selected: [k]. Returns how many were taken.
  int64_t (*select_topk)(std::span<const float> scores, std::span<const uint8_t> kept,
                         int64_t block_size, std::span<int32_t> selected);

  // Sparse attention with a sink (0.7). q: [T, head_count * head_dim]; slots: [T, slot_count];
  // sink: [head_count]; out as q.
  void (*sparse_attention)(View<const float> q, View<const std::byte* const> slots,
                           const AttentionLayout& layout, std::span<const float> sink, float scale,
                           View<float> out, ThreadPool& pool);

  // Router of one token (7.1): score = sqrt(softplus(logit / gate_temp)); the k largest
  // score + bias, best first, equal: the lower expert; weights = scores normalised and scaled.
  void (*router_select)(std::span<const float> logits, std::span<const float> bias,
                        const RouterParameters& parameters, std::span<int32_t> experts,
                        std::span<float> weights);

  // h = weight * (silu(min(a, limit)) * clamp(u, -limit, limit)), bf16 if round_bf16 (7.2).
  // gate, up, h: [T, n]; row_weights: [T], or empty for no weight. limit <= 0: no clamp.
  void (*swiglu)(View<const float> gate, View<const float> up, std::span<const float> row_weights,
                 float limit, bool round_bf16, View<float> h, ThreadPool& pool);

  // y = bf16( (sum over slots of routed, in the given order) + shared ) (7.3). routed: [slots, d];
  // `order`: the slots by ascending expert id; shared, y: [d].
  void (*moe_combine)(View<const float> routed, std::span<const int32_t> order,
                      std::span<const float> shared, bool round_bf16, std::span<float> y);

  // Engram gate and write-back (8.4). streams: [T, hc_mult * d] in place; projected: [T,
  // (hc_mult + 1) * d], keys of the streams and then the shared value; q_weight, k_weight: bf16
  // [hc_mult * d]; blocked: [T], 1 where the gate is 0 (image spans), or empty.
  void (*engram_write)(View<float> streams, View<const float> projected,
                       std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                       std::span<const uint8_t> blocked, int64_t hc_mult, float norm_eps,
                       bool round_bf16, ThreadPool& pool);
};

// Plain scalar twins: the readable definition, the oracle and the diagnostic modes.
const Kernels& ReferenceKernels();
// SIMD (Highway) where it pays, the twins elsewhere; same bits as the reference: the first call
// proves it on small inputs, and where a bit differs the reference table is what it returns.
const Kernels& FastKernels();
// The entry whose bits differ on this processor, for a warning; null where none does.
const char* FastKernelsDifference();
// The name of the SIMD target FastKernels() runs on, e.g. "AVX2".
const char* FastTargetName();

}  // namespace minke
