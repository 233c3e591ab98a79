// Sparse attention over the packed cache. Rows are decoded in blocks of 64, which is also the block
// of the online softmax, and every head uses the decoded block.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sparse_attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;  // channels have nothing to do with each other
using D32 = hn::Rebind<int32_t, D>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = HWY_MAX_BYTES / 4;
constexpr int64_t kBlock = reference::kAttentionBlock;

HWY_INLINE V RoundToBf16(V value) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto sum = hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFF)), odd);
  const V rounded = hn::BitCast(D(), hn::ShiftLeft<16>(hn::ShiftRight<16>(sum)));
  return hn::IfThenElse(hn::IsNaN(value), hn::BitCast(D(), hn::Set(d32, 0x7FC00000)), rounded);
}

// kVectors vectors of channels of kHeads heads: out = fma(p, row, out) over the rows in order.
template <int kHeads, int kVectors>
HWY_INLINE void AddRows(const float* rows, int64_t row_count, int64_t row_stride,
                        const float* probabilities, const float* corrections, float* out,
                        int64_t out_stride) {
  const D d;
  V sum[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sum[h][v] =
          hn::Mul(hn::LoadU(d, out + h * out_stride + v * kLanes), hn::Set(d, corrections[h]));
    }
  }
  for (int64_t i = 0; i < row_count; ++i) {
    V row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, rows + i * row_stride + v * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const V p = hn::Set(d, probabilities[h * kBlock + i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[h][v] = hn::MulAdd(p, row[v], sum[h][v]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[h][v], d, out + h * out_stride + v * kLanes);
    }
  }
}

template <int kHeads>
HWY_INLINE void AddRowsOfHeads(const float* rows, int64_t row_count, int64_t dim,
                               const float* probabilities, const float* corrections, float* out) {
  int64_t c = 0;
  for (; c + 2 * kLanes <= dim; c += 2 * kLanes) {
    AddRows<kHeads, 2>(rows + c, row_count, dim, probabilities, corrections, out + c, dim);
  }
  for (; c + kLanes <= dim; c += kLanes) {
    AddRows<kHeads, 1>(rows + c, row_count, dim, probabilities, corrections, out + c, dim);
  }
  for (; c < dim; ++c) {
    for (int h = 0; h < kHeads; ++h) {
      float& value = out[h * dim + c];
      value *= corrections[h];
      for (int64_t i = 0; i < row_count; ++i) {
        value = std::fma(probabilities[h * kBlock + i], rows[i * dim + c], value);
      }
    }
  }
}

// out[h] = out[h] * corrections[h] + sum over rows of probabilities[h][i] * rows[i].
// rows: [row_count, dim]; probabilities: [heads][kBlock]; out: [heads, dim].
void AddWeightedRowsImpl(const float* rows, int64_t row_count, int64_t dim, int64_t heads,
                         const float* probabilities, const float* corrections, float* out) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) {
    AddRowsOfHeads<4>(rows, row_count, dim, probabilities + h * kBlock, corrections + h,
                      out + h * dim);
  }
  for (; h < heads; ++h) {
    AddRowsOfHeads<1>(rows, row_count, dim, probabilities + h * kBlock, corrections + h,
                      out + h * dim);
  }
}

void DivideImpl(float* values, int64_t n, float divisor, bool round_bf16) {
  const D d;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const V quotient = hn::Div(hn::LoadU(d, values + i), hn::Set(d, divisor));
    hn::StoreU(round_bf16 ? RoundToBf16(quotient) : quotient, d, values + i);
  }
  for (; i < n; ++i) values[i] = reference::RoundIf(round_bf16, values[i] / divisor);
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(AddWeightedRowsImpl);
HWY_EXPORT(DivideImpl);

namespace {

constexpr int64_t kBlock = reference::kAttentionBlock;

// Scratch of one worker for one block of slots.
struct BlockScratch {
  BlockScratch(int64_t head_count, int64_t dim)
      : rows(AllocateAligned(kBlock * dim * sizeof(float))),
        scores(head_count * kBlock),
        corrections(head_count),
        maxima(head_count),
        denominators(head_count) {}
  float* row_data() { return reinterpret_cast<float*>(rows.get()); }

  AlignedBytes rows;                // [kBlock, dim], decoded
  std::vector<float> scores;        // [heads, kBlock], then the probabilities
  std::vector<float> corrections;   // [heads]
  std::vector<float> maxima;        // [heads], running
  std::vector<float> denominators;  // [heads], running
};

// Decodes the non-empty slots of a block one after the other; returns how many.
int64_t DecodeBlock(std::span<const std::byte* const> slots, int64_t first_slot,
                    const AttentionLayout& layout, float* rows) {
  std::array<const std::byte*, kBlock> packed;
  int64_t window = 0;
  int64_t count = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] == nullptr) continue;
    packed[count++] = slots[i];
    if (first_slot + static_cast<int64_t>(i) < layout.window_slots) window = count;
  }
  const std::span<const std::byte* const> all(packed.data(), count);
  DecodeRows(layout.window_format, all.first(window), layout.head_dim, rows);
  DecodeRows(layout.compressed_format, all.subspan(window), layout.head_dim,
             rows + window * layout.head_dim);
  return count;
}

// Turns the dots of head h into probabilities and moves its running maximum and denominator
// (architecture.md 0.7, step 2).
void Softmax(BlockScratch& scratch, int64_t h, int64_t count, float scale,
             bool round_probabilities) {
  const std::span<float> scores(&scratch.scores[h * kBlock], count);
  const float before = scratch.maxima[h];
  float maximum = before;
  for (float& score : scores) {
    score *= scale;
    maximum = std::max(maximum, score);
  }
  float sum = 0.0f;
  for (float& score : scores) {
    const float e = std::exp(score - maximum);
    sum += e;
    score = reference::RoundIf(round_probabilities, e);
  }
  scratch.corrections[h] = std::exp(before - maximum);
  scratch.denominators[h] = scratch.denominators[h] * scratch.corrections[h] + sum;
  scratch.maxima[h] = maximum;
}

struct HeadRange {
  int64_t begin;
  int64_t count;
};

// Heads [begin, begin + count) of one query row.
void AttendHeads(const float* q, std::span<const std::byte* const> slots,
                 const AttentionLayout& layout, HeadRange heads, std::span<const float> sink,
                 float scale, float* out, BlockScratch& scratch) {
  const int64_t dim = layout.head_dim;
  q += heads.begin * dim;
  out += heads.begin * dim;
  std::fill_n(out, heads.count * dim, 0.0f);
  std::fill_n(scratch.maxima.begin(), heads.count, reference::kEmptyMaximum);
  std::fill_n(scratch.denominators.begin(), heads.count, 0.0f);
  const auto slot_count = static_cast<int64_t>(slots.size());
  for (int64_t first = 0; first < slot_count; first += kBlock) {
    const auto block = slots.subspan(first, std::min(kBlock, slot_count - first));
    const int64_t count = DecodeBlock(block, first, layout, scratch.row_data());
    if (count == 0) continue;
    DotTile({.x = q,
             .x_stride = dim,
             .rows = heads.count,
             .w = scratch.row_data(),
             .w_stride = dim,
             .outputs = count,
             .cols = dim,
             .y = scratch.scores.data(),
             .y_stride = kBlock});
    for (int64_t h = 0; h < heads.count; ++h) {
      Softmax(scratch, h, count, scale, layout.round_probabilities);
    }
    HWY_DYNAMIC_DISPATCH(AddWeightedRowsImpl)
    (scratch.row_data(), count, dim, heads.count, scratch.scores.data(), scratch.corrections.data(),
     out);
  }
  for (int64_t h = 0; h < heads.count; ++h) {
    // The sink joins the denominator only: it is neither scaled nor part of the maximum.
    const float denominator =
        scratch.denominators[h] + std::exp(sink[heads.begin + h] - scratch.maxima[h]);
    HWY_DYNAMIC_DISPATCH(DivideImpl)(out + h * dim, dim, denominator, layout.round_output);
  }
}

}  // namespace

void SparseAttention(View<const float> q, View<const std::byte* const> slots,
                     const AttentionLayout& layout, std::span<const float> sink, float scale,
                     View<float> out, ThreadPool& pool) {
  CHECK(q.cols == layout.head_count * layout.head_dim && out.cols == q.cols);
  CHECK(slots.rows == q.rows && out.rows == q.rows);
  CHECK(static_cast<int64_t>(sink.size()) == layout.head_count);
  // A group of heads decodes the rows once, so rows are split first and heads only where there
  // are fewer rows than threads.
  const int64_t wanted_groups = (pool.threads() + q.rows - 1) / std::max<int64_t>(q.rows, 1);
  const int64_t groups =
      std::clamp<int64_t>(wanted_groups, 1, std::max<int64_t>(layout.head_count, 1));
  const int64_t group_heads = (layout.head_count + groups - 1) / groups;
  const int64_t item_cost = 2 * slots.cols * group_heads * layout.head_dim;
  pool.ParallelFor(q.rows * groups, pool.GrainFor(item_cost), [&](int64_t begin, int64_t end, int) {
    BlockScratch scratch(group_heads, layout.head_dim);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t t = unit / groups;
      const int64_t first = unit % groups * group_heads;
      const HeadRange heads = {first, std::min(group_heads, layout.head_count - first)};
      if (heads.count <= 0) continue;
      AttendHeads(q.Row(t), {slots.Row(t), static_cast<size_t>(slots.cols)}, layout, heads, sink,
                  scale, out.Row(t), scratch);
    }
  });
}

}  // namespace minke::simd
#endif
