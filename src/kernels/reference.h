// The plain scalar twins, one function an entry of the table in kernels.h, and the few scalar
// pieces the SIMD versions share with them. Only files of this folder and its tests include this.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace minke::reference {

inline constexpr int64_t kLanes = 8;            // partial sums of the canonical sum
inline constexpr int64_t kAttentionBlock = 64;  // slots between two updates of the running maximum
inline constexpr int64_t kScaleGroup = 32;      // weights or channels under one UE8M0 scale
inline constexpr float kEmptyMaximum = -1e30f;  // finite, so that an empty row yields exactly 0

// The last additions of the canonical sum.
inline float ReduceLanes(const float* s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}
// Canonical sum of a[i] * b[i].
float Dot(const float* a, const float* b, int64_t n);

// The E2M1 values of row n of FP4 weights, without their scales: [w.cols].
void DecodeFp4Codes(const Weight& w, int64_t n, float* out);
// The product of x with such a row (kernels.h).
float Fp4Dot(const float* x, const float* codes, const uint8_t* scales, int64_t cols);

inline float Sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
inline float InverseSqrt(float x) {
  return 1.0f / std::sqrt(x);
}
inline float RoundIf(bool round, float value) {
  return round ? RoundBf16(value) : value;
}

// Rows per share of a kernel that works value by value; a value costs about as much as eight
// multiply-adds of a product.
inline int64_t RowGrain(const ThreadPool& pool, int64_t cols) {
  return pool.GrainFor(8 * cols);
}

// Float values of weight row `row`. out: [w.cols].
void DecodeWeightRow(const Weight& w, int64_t row, float* out);

// pre, post and comb of one token from m = (x . fn) * r (architecture.md 3.2).
// m, base: [(2 + hc_mult) * hc_mult]; scale: [3]; pre, post: [hc_mult]; comb: [hc_mult * hc_mult].
struct HcOutputs {
  float* pre;
  float* post;
  float* comb;
};
void HcCoefficients(std::span<const float> m, std::span<const float> base,
                    std::span<const float> scale, int64_t hc_mult, int64_t sinkhorn_iters,
                    float hc_eps, const HcOutputs& out);

// hc_mult from the (2 + hc_mult) * hc_mult rows of fn.
int64_t HcMult(int64_t coefficient_count);

// The Engram gate from the three canonical sums of one stream (architecture.md 8.4).
float EngramGate(float dot, float stream_square_sum, float key_square_sum, int64_t d, float eps);

// silu(min(a, limit)) * clamp(u, -limit, limit); limit <= 0: no clamp (architecture.md 7.2).
inline float GatedUnit(float a, float u, float limit) {
  if (limit > 0.0f) {
    a = a > limit ? limit : a;
    u = u > limit ? limit : (u < -limit ? -limit : u);
  }
  return (a / (1.0f + std::exp(-a))) * u;
}

// A score as an unsigned key that orders like the number: -0 equals +0, NaN counts as -inf.
inline uint32_t OrderKey(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  // All bits of a negative number are flipped, of a positive one the sign: no branch on the sign,
  // which would be mispredicted every other time.
  const uint32_t negative = 0u - (bits >> 31);
  return std::isnan(score) ? 0x007FFFFFu : bits ^ (negative | 0x80000000u);
}
inline constexpr uint32_t kMinusInfinityKey = 0x007FFFFFu;

void Matmul(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool);
void RoundBf16Rows(View<float> values, ThreadPool& pool);
void QuantizeQ8(View<const float> x, View<float> y, ThreadPool& pool);
void QuantizeQ4I(View<float> values, ThreadPool& pool);
void RmsNorm(View<const float> x, std::span<const uint16_t> weight, float eps, bool round_bf16,
             View<float> y, ThreadPool& pool);
void Rope(View<float> x, int64_t head_dim, std::span<const int64_t> positions,
          const RopeTable& table, bool inverse, bool round_bf16, ThreadPool& pool);
void HcMix(View<const float> streams, const Weight& fn, std::span<const float> base,
           std::span<const float> scale, int64_t sinkhorn_iters, float norm_eps, float hc_eps,
           View<float> pre, View<float> post, View<float> comb, ThreadPool& pool);
void HcCollapse(View<const float> streams, View<const float> pre, bool round_bf16, View<float> u,
                ThreadPool& pool);
void HcExpand(View<const float> y, View<const float> post, View<const float> comb, bool round_bf16,
              View<float> streams, ThreadPool& pool);
void CompressorPool(std::span<const float* const> kv, std::span<const float* const> gate,
                    bool round_bf16, std::span<float> pooled);
void IndexScores(View<const float> queries, std::span<const float> head_weights,
                 RowFormat key_format, std::span<const IndexRun> runs, bool round_bf16);
void SelectCandidates(std::span<const float> scores, int64_t block_size, int64_t topk_blocks,
                      std::span<uint8_t> kept);
int64_t SelectTopk(std::span<const float> scores, std::span<const uint8_t> kept, int64_t block_size,
                   std::span<int32_t> selected);
void SparseAttention(View<const float> q, View<const std::byte* const> slots,
                     const AttentionLayout& layout, std::span<const float> sink, float scale,
                     View<float> out, ThreadPool& pool);
void RouterSelect(std::span<const float> logits, std::span<const float> bias,
                  const RouterParameters& parameters, std::span<int32_t> experts,
                  std::span<float> weights);
void SwiGlu(View<const float> gate, View<const float> up, std::span<const float> row_weights,
            float limit, bool round_bf16, View<float> h, ThreadPool& pool);
void MoeCombine(View<const float> routed, std::span<const int32_t> order,
                std::span<const float> shared, bool round_bf16, std::span<float> y);
void EngramWrite(View<float> streams, View<const float> projected,
                 std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                 std::span<const uint8_t> blocked, int64_t hc_mult, float norm_eps, bool round_bf16,
                 ThreadPool& pool);

}  // namespace minke::reference
