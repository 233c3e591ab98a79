// The SIMD entry points behind FastKernels() and the pieces they share. Each dispatches to the
// Highway target that ForceTarget() left enabled. Only files of this folder and its tests include
// this.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/kernels.h"

namespace minke::simd {

// Names the target SIMD code runs on from now on. "AVX2" or "AVX3" asks for that target, an empty
// or unknown name or one the processor lacks leaves the best one. Process-wide, not thread-safe:
// FastKernels() calls it once, tests call it again.
const char* ForceTarget(std::string_view name);
// The name of the target that a dispatched function was compiled for.
const char* RunningTarget();
// The table for a value of MINKE_TARGET: "reference" is the scalar table, anything else SIMD.
const Kernels& TableFor(std::string_view name);

// matmul.cc. y[r * y_stride + n] = canonical sum of x row r and w row n, both float32.
struct DotTileArguments {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  const float* w = nullptr;
  int64_t w_stride = 0;
  int64_t outputs = 0;
  int64_t cols = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};
void DotTile(const DotTileArguments& arguments);
void Matmul(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool);

// few_rows.cc
// Rows of x for which MatmulFewRows is faster than unpacking weights for all of them; 0 for weights
// that it does not take.
int64_t FewRowsMax(const Weight& w);
// matmul. REQUIRES: BF16 or float32 weights and w.cols a multiple of 8, or FP8 weights and of 32.
void MatmulFewRows(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool);

// weight_decoding.cc
// Floats of inputs [begin, begin + count) of weight row `row`, eight together and every eight
// `step` floats behind the ones before. REQUIRES: begin is a multiple of 32.
using DecodeWeightsFunction = void (*)(const Weight& w, int64_t row, int64_t begin, int64_t count,
                                       float* out, int64_t step);
// The decoder of the running target, to be asked for once a product.
DecodeWeightsFunction WeightDecoder();
// Decodes packed rows (none null) to consecutive rows of `channels` floats.
void DecodeRows(RowFormat format, std::span<const std::byte* const> packed, int64_t channels,
                float* out);

// fp4_products.cc. matmul of FP4 weights.
void Fp4Product(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool);
// Outputs [output, output + outputs) of one row by the definition: what the integers cannot hold.
void Fp4PlainOutputs(const float* x, const Weight& w, int64_t output, int64_t outputs, float* y);
// fp4_blocks.cc. The same for many rows.
void Fp4Blocks(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool);

// quantize.cc
void RoundBf16Rows(View<float> values, ThreadPool& pool);
void QuantizeQ8(View<const float> x, View<float> y, ThreadPool& pool);
void QuantizeQ4I(View<float> values, ThreadPool& pool);

// elementwise.cc
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
void MoeCombine(View<const float> routed, std::span<const int32_t> order,
                std::span<const float> shared, bool round_bf16, std::span<float> y);
void EngramWrite(View<float> streams, View<const float> projected,
                 std::span<const uint16_t> q_weight, std::span<const uint16_t> k_weight,
                 std::span<const uint8_t> blocked, int64_t hc_mult, float norm_eps, bool round_bf16,
                 ThreadPool& pool);

// index_scores.cc
void IndexScores(View<const float> queries, std::span<const float> head_weights,
                 RowFormat key_format, std::span<const IndexRun> runs, bool round_bf16);

// sparse_attention.cc
void SparseAttention(View<const float> q, View<const std::byte* const> slots,
                     const AttentionLayout& layout, std::span<const float> sink, float scale,
                     View<float> out, ThreadPool& pool);

// selection.cc: no SIMD, but one pass a digit instead of sorting.
void SelectCandidates(std::span<const float> scores, int64_t block_size, int64_t topk_blocks,
                      std::span<uint8_t> kept);
int64_t SelectTopk(std::span<const float> scores, std::span<const uint8_t> kept, int64_t block_size,
                   std::span<int32_t> selected);

}  // namespace minke::simd
