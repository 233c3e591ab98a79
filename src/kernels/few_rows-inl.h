// Pieces of the products of few rows (few_rows.cc): fetching, and sums in vectors of 512 bits.
// Included once per instruction set, as Highway's own files of this kind are.
#include <immintrin.h>

#include <array>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/reference.h"
#include "kernels/simd.h"

#include "kernels/fp8_patterns-inl.h"
#include "kernels/target-inl.h"

#if defined(MINKE_KERNELS_FEW_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_FEW_ROWS_INL_H_
#undef MINKE_KERNELS_FEW_ROWS_INL_H_
#else
#define MINKE_KERNELS_FEW_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kOutputBlock = 8;  // outputs whose weights are read side by side
constexpr int64_t kFewRowsMax = 8;   // rows for which nothing is unpacked for all of them

// The outputs of a block are read side by side, `step` values of each at a time. Meanwhile those of
// the next block are fetched in the order of memory: the processor follows one stream better than
// eight. A block that does not stay in the second cache is fetched where it is read.
constexpr int64_t kFetchBlockMax = int64_t{128} << 10;  // bytes
constexpr int64_t kFetchBytes = 1024;                   // ahead in a row
template <int kOutputs, typename T>
HWY_INLINE void FetchNext(const T* weights, int64_t cols, int64_t at, int64_t step) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = 64 / kBytes;
  if (HWY_LIKELY(kOutputs * cols * kBytes <= kFetchBlockMax)) {
    const T* next = weights + kOutputs * (cols + at);
#pragma GCC unroll 8
    for (int64_t line = 0; line < kOutputs * step; line += kLine) __builtin_prefetch(next + line);
    return;
  }
#pragma GCC unroll 8
  for (int64_t n = 0; n < kOutputs; ++n) {
    __builtin_prefetch(weights + n * cols + at + kFetchBytes / kBytes);
  }
}

#if HWY_MAX_BYTES == 64

// A line of memory of each of four outputs is turned into vectors that hold the same eight inputs
// of all four, so that a lane stays one of the eight partial sums of one output.
using WideD = hn::FixedTag<float, 16>;
using WideV = hn::Vec<WideD>;
using WideWords = hn::FixedTag<int16_t, 32>;
using WideBytes = hn::FixedTag<uint8_t, 64>;
constexpr int64_t kLine = 64;  // bytes

// Transposes the 4 x 4 blocks of four vectors.
HWY_INLINE void TransposeBlocks(__m512i (&rows)[4]) {
  const __m512i lower01 = _mm512_shuffle_i64x2(rows[0], rows[1], 0x44);
  const __m512i lower23 = _mm512_shuffle_i64x2(rows[2], rows[3], 0x44);
  const __m512i upper01 = _mm512_shuffle_i64x2(rows[0], rows[1], 0xEE);
  const __m512i upper23 = _mm512_shuffle_i64x2(rows[2], rows[3], 0xEE);
  rows[0] = _mm512_shuffle_i64x2(lower01, lower23, 0x88);
  rows[1] = _mm512_shuffle_i64x2(lower01, lower23, 0xDD);
  rows[2] = _mm512_shuffle_i64x2(upper01, upper23, 0x88);
  rows[3] = _mm512_shuffle_i64x2(upper01, upper23, 0xDD);
}

// Of every eight inputs the even ones, then the odd ones; times the scales of a row of tiles if
// there are any. out: [rows][cols]. REQUIRES: x.cols is a multiple of 16, with scales of 32.
inline void OrderInputs(View<const float> x, const uint8_t* scales, float* out) {
  alignas(64) static constexpr std::array<int32_t, 16> kOrder = {0, 2,  4,  6,  1, 3,  5,  7,
                                                                 8, 10, 12, 14, 9, 11, 13, 15};
  const WideD d;
  const auto order = hn::SetTableIndices(d, kOrder.data());
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t i = 0; i < x.cols; i += 16, out += 16) {
      WideV values = hn::LoadU(d, x.Row(r) + i);
      if (scales != nullptr)
        values = hn::Mul(values, hn::Set(d, PatternFactor(scales[i / reference::kScaleGroup])));
      hn::StoreU(hn::TableLookupLanes(values, order), d, out);
    }
  }
}

// Eight inputs of four outputs: the even ones, then the odd ones, four of an output in a block.
struct Chunk {
  WideV even;
  WideV odd;
};

// Of words that are the upper halves of floats.
HWY_INLINE Chunk ChunkOfWords(__m512i words) {
  const WideD d;
  const hn::FixedTag<uint32_t, 16> d32;
  const hn::Vec<decltype(d32)> pairs{words};
  return {hn::BitCast(d, hn::ShiftLeft<16>(pairs)),
          hn::BitCast(d, hn::And(pairs, hn::Set(d32, 0xFFFF0000u)))};
}

// The same inputs of 4 * kFours outputs. x: these inputs of the first row; the next one is x_stride
// floats on. Repeating four inputs takes as long as a multiply-add, so it serves all fours.
template <int kRows, int kFours>
HWY_INLINE void AddChunks(const float* x, int64_t x_stride, const Chunk (&chunks)[kFours],
                          WideV (&sums)[kFours][kRows][2]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float* inputs = x + r * x_stride;
    const WideV even = hn::LoadDup128(WideD(), inputs);
    const WideV odd = hn::LoadDup128(WideD(), inputs + 4);
#pragma GCC unroll 2
    for (int f = 0; f < kFours; ++f) {
      sums[f][r][0] = hn::MulAdd(even, chunks[f].even, sums[f][r][0]);
      sums[f][r][1] = hn::MulAdd(odd, chunks[f].odd, sums[f][r][1]);
    }
  }
}

// The patterns (fp8_patterns-inl.h) of codes: words for the lower and for the upper half of every
// block.
struct PatternWords {
  __m512i lower;
  __m512i upper;
};

HWY_INLINE PatternWords WordsOfCodes(__m512i codes) {
#if HWY_TARGET <= HWY_AVX3_DL
  // Bits of a code, as rows of a matrix: s 0 0 0 0 e e e and e m m m 0 0 0 0 of s e e e e m m m.
  const __m512i high = _mm512_gf2p8affine_epi64_epi8(
      codes, _mm512_set1_epi64(static_cast<int64_t>(0x1020400000000080u)), 0);
  const __m512i low =
      _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x0000000001020408), 0);
  return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
#else
  const __m512i zero = _mm512_setzero_si512();
  const __m512i mask = _mm512_set1_epi16(static_cast<int16_t>(0x87F0));
  const auto pattern = [&](__m512i words)
                           HWY_ATTR { return _mm512_and_si512(_mm512_srai_epi16(words, 4), mask); };
  return {pattern(_mm512_unpacklo_epi8(zero, codes)), pattern(_mm512_unpackhi_epi8(zero, codes))};
#endif
}

// Adds block c of four lines of each of kFours fours. x: the inputs of the whole lines.
template <int kRows, int kFours>
HWY_INLINE void AddBlock(const float* x, int64_t x_stride, const __m512i (&lines)[kFours][4],
                         const uint8_t*, int64_t c, WideV (&sums)[kFours][kRows][2]) {
  __m512i upper[kFours];
  Chunk chunks[kFours];
#pragma GCC unroll 2
  for (int f = 0; f < kFours; ++f) {
    const PatternWords words = WordsOfCodes(lines[f][c]);
    chunks[f] = ChunkOfWords(words.lower);
    upper[f] = words.upper;
  }
  AddChunks(x + 2 * c * reference::kLanes, x_stride, chunks, sums);
#pragma GCC unroll 2
  for (int f = 0; f < kFours; ++f) chunks[f] = ChunkOfWords(upper[f]);
  AddChunks(x + (2 * c + 1) * reference::kLanes, x_stride, chunks, sums);
}
template <int kRows, int kFours>
HWY_INLINE void AddBlock(const float* x, int64_t x_stride, const __m512i (&lines)[kFours][4],
                         const uint16_t*, int64_t c, WideV (&sums)[kFours][kRows][2]) {
  Chunk chunks[kFours];
#pragma GCC unroll 2
  for (int f = 0; f < kFours; ++f) chunks[f] = ChunkOfWords(lines[f][c]);
  AddChunks(x + c * reference::kLanes, x_stride, chunks, sums);
}

// 4 * kFours outputs of kRows rows of ordered inputs: FP8 codes or BF16 words. False if a code is
// NaN, and y is not written then.
template <int kRows, int kFours = kOutputBlock / 4, typename T>
bool WideOutputs(const float* x, int64_t cols, const T* weights, float* y, int64_t y_stride) {
  constexpr bool kIsFp8 = sizeof(T) == 1;
  constexpr auto kStep = static_cast<int64_t>(kLine / sizeof(T));
  const WideD d;
  const __m512i nan = _mm512_set1_epi8(0x7F);
  __m512i largest = _mm512_setzero_si512();
  WideV sums[kFours][kRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kFours * kRows * 2; ++i) {
    sums[i / (2 * kRows)][i / 2 % kRows][i % 2] = hn::Zero(d);
  }
  for (int64_t i = 0; i < cols; i += kStep) {
    FetchNext<4 * kFours>(weights, cols, i, kStep);
    __m512i lines[kFours][4];
#pragma GCC unroll 2
    for (int64_t f = 0; f < kFours; ++f) {
#pragma GCC unroll 4
      for (int64_t n = 0; n < 4; ++n) {
        lines[f][n] = _mm512_loadu_si512(weights + (4 * f + n) * cols + i);
        if (kIsFp8) largest = _mm512_max_epu8(largest, _mm512_and_si512(lines[f][n], nan));
      }
      TransposeBlocks(lines[f]);
    }
#pragma GCC unroll 4
    for (int64_t c = 0; c < 4; ++c) AddBlock(x + i, cols, lines, weights, c, sums);
  }
  if (kIsFp8 && _mm512_cmpeq_epi8_mask(largest, nan) != 0) return false;
#pragma GCC unroll 4
  for (int64_t f = 0; f < kFours; ++f) {
#pragma GCC unroll 4
    for (int64_t r = 0; r < kRows; ++r) {
      const auto total = [](WideV sum) HWY_ATTR {
        const WideV pairs = hn::Add(sum, WideV{_mm512_permute_ps(sum.raw, 0x4E)});
        return hn::Add(pairs, WideV{_mm512_permute_ps(pairs.raw, 0xB1)});
      };
      alignas(64) std::array<float, 16> lanes;
      hn::Store(hn::Add(total(sums[f][r][0]), total(sums[f][r][1])), d, lanes.data());
      for (int64_t n = 0; n < 4; ++n) {
        y[r * y_stride + 4 * f + n] = lanes[static_cast<size_t>(4 * n)];
      }
    }
  }
  return true;
}

#endif  // vectors of 512 bits

}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of each instruction set
