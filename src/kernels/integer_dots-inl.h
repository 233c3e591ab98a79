// Pieces of the kernels that sum products of bytes. Included once per instruction set, as Highway's
// own files of this kind are. Vectors are as wide as the instruction set has them, rows of blocks
// of 128 bits; multiply-adds of bytes are intrinsics, since this release of Highway does not know
// them.
#include <immintrin.h>

#include <cstdint>

#include <hwy/highway.h>

#include "kernels/target-inl.h"

#if defined(MINKE_KERNELS_INTEGER_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_INTEGER_DOTS_INL_H_
#undef MINKE_KERNELS_INTEGER_DOTS_INL_H_
#else
#define MINKE_KERNELS_INTEGER_DOTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::ScalableTag<uint8_t>;
using D16 = hn::Repartition<int16_t, D8>;
using D32 = hn::Repartition<int32_t, D8>;
using DF = hn::Repartition<float, D8>;
using V8 = hn::Vec<D8>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
using VF = hn::Vec<DF>;

constexpr int64_t kVectorBytes = HWY_MAX_BYTES;
constexpr int64_t kBlockBytes = 16;
constexpr int64_t kVectorBlocks = kVectorBytes / kBlockBytes;
constexpr int64_t kWordLanes = kVectorBytes / 4;  // of 32 bits

// Blocks n, n + 4, n + 8, ...: load(n) is one.
template <typename Load>
HWY_INLINE V8 EveryFourth(int64_t n, const Load& load) {
#if HWY_MAX_BYTES == 64
  const __m512i lower = _mm512_castsi256_si512(_mm256_set_m128i(load(n + 4), load(n)));
  return V8{_mm512_inserti64x4(lower, _mm256_set_m128i(load(n + 12), load(n + 8)), 1)};
#else
  return V8{_mm256_set_m128i(load(n + 4), load(n))};
#endif
}

// Blocks [0, count) of a vector, with zeros behind them. REQUIRES: 0 < count < kVectorBlocks.
HWY_INLINE V8 LoadBlocks(const uint8_t* from, int64_t count) {
#if HWY_MAX_BYTES == 64
  return V8{_mm512_maskz_loadu_epi32(static_cast<__mmask16>((1 << 4 * count) - 1), from)};
#else
  static_cast<void>(count);
  return V8{_mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
#endif
}

// kWordLanes bytes as integers.
HWY_INLINE V32 LoadWidened(const uint8_t* from) {
  return hn::PromoteTo(D32(), hn::LoadU(hn::Rebind<uint8_t, D32>(), from));
}

// Codes of four bits as bytes of a table of 16: those of the low nibbles, which are the even
// elements, and those of the high ones.
struct Unpacked {
  V8 even;
  V8 odd;
};
HWY_INLINE Unpacked Unpack(V8 pairs, const uint8_t* table) {
  const D8 d8;
  const V8 wide = hn::LoadDup128(d8, table);
  const auto words = hn::BitCast(hn::Repartition<uint16_t, D8>(), pairs);
  const V8 high = hn::BitCast(d8, hn::ShiftRight<4>(words));
#if HWY_TARGET <= HWY_AVX3_DL
  // Looks at six bits: what is above the four makes no difference, since the table is repeated.
  return {V8{_mm512_permutexvar_epi8(pairs.raw, wide.raw)},
          V8{_mm512_permutexvar_epi8(high.raw, wide.raw)}};
#else
  const V8 nibble = hn::Set(d8, 0x0F);
  return {hn::TableLookupBytes(wide, hn::And(pairs, nibble)),
          hn::TableLookupBytes(wide, hn::And(high, nibble))};
#endif
}

// A block of each of kWordLanes rows, where rows n, n + 4, ... are the blocks of rows[n]: quads[i]
// has the i-th 32 bits of every row, a row in each lane.
HWY_INLINE void TransposeRows(const V8 (&rows)[4], V8 (&quads)[4]) {
  const D8 d8;
  const D32 d32;
  const hn::Repartition<uint64_t, D8> d64;
  const auto words = [&](V8 v) HWY_ATTR { return hn::BitCast(d32, v); };
  const auto pairs = [&](V32 v) HWY_ATTR { return hn::BitCast(d64, v); };
  const auto low01 = pairs(hn::InterleaveLower(d32, words(rows[0]), words(rows[1])));
  const auto low23 = pairs(hn::InterleaveLower(d32, words(rows[2]), words(rows[3])));
  const auto high01 = pairs(hn::InterleaveUpper(d32, words(rows[0]), words(rows[1])));
  const auto high23 = pairs(hn::InterleaveUpper(d32, words(rows[2]), words(rows[3])));
  quads[0] = hn::BitCast(d8, hn::InterleaveLower(d64, low01, low23));
  quads[1] = hn::BitCast(d8, hn::InterleaveUpper(d64, low01, low23));
  quads[2] = hn::BitCast(d8, hn::InterleaveLower(d64, high01, high23));
  quads[3] = hn::BitCast(d8, hn::InterleaveUpper(d64, high01, high23));
}

// ---- multiply-adds ----

// sum + products of unsigned by signed bytes, four to a lane.
// REQUIRES: two products never leave 16 bits.
HWY_INLINE V32 AddQuads(V32 sum, V8 a, V8 b) {
#if HWY_TARGET <= HWY_AVX3_DL
  return V32{_mm512_dpbusd_epi32(sum.raw, a.raw, b.raw)};
#elif HWY_MAX_BYTES == 64
  const __m512i pairs = _mm512_maddubs_epi16(a.raw, b.raw);
  return V32{_mm512_add_epi32(sum.raw, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#else
  const __m256i pairs = _mm256_maddubs_epi16(a.raw, b.raw);
  return V32{_mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
#endif
}

// sum + products of words, two to a lane.
HWY_INLINE V32 AddPairs(V32 sum, V16 a, V16 b) {
#if HWY_TARGET <= HWY_AVX3_DL
  return V32{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
#elif HWY_MAX_BYTES == 64
  return V32{_mm512_add_epi32(sum.raw, _mm512_madd_epi16(a.raw, b.raw))};
#else
  return V32{_mm256_add_epi32(sum.raw, _mm256_madd_epi16(a.raw, b.raw))};
#endif
}

// Products of unsigned by signed bytes, two to a word.
HWY_INLINE V16 MulPairs(V8 a, V8 b) {
#if HWY_MAX_BYTES == 64
  return V16{_mm512_maddubs_epi16(a.raw, b.raw)};
#else
  return V16{_mm256_maddubs_epi16(a.raw, b.raw)};
#endif
}

// In every block [a, b, c, d], each the sum of its four lanes of that block.
HWY_INLINE V32 SumLanes(V32 a, V32 b, V32 c, V32 d) {
  const D32 d32;
  const hn::Repartition<int64_t, D8> d64;
  const auto halves = [&](V32 one, V32 other) HWY_ATTR {
    return hn::BitCast(
        d64, hn::Add(hn::InterleaveLower(d32, one, other), hn::InterleaveUpper(d32, one, other)));
  };
  const auto ab = halves(a, b);
  const auto cd = halves(c, d);
  return hn::Add(hn::BitCast(d32, hn::InterleaveLower(d64, ab, cd)),
                 hn::BitCast(d32, hn::InterleaveUpper(d64, ab, cd)));
}

// ---- 32 activations, in vectors of 256 bits ----

// 32 integers of a signed byte each, sorted like unpacked codes: 16 even ones, 16 odd ones.
HWY_INLINE void StoreSplit(const __m256i (&values)[4], void* even, void* odd) {
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(values[0], values[1]),
                                            _mm256_packs_epi32(values[2], values[3]));
  // Elements 8 j to 8 j + 3 lie in the lower half, 8 j + 4 to 8 j + 7 in the upper one.
  const __m256i split = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
  const __m256i sorted = _mm256_shuffle_epi8(packed, split);
  const __m128i lower = _mm256_castsi256_si128(sorted);
  const __m128i upper = _mm256_extracti128_si256(sorted, 1);
  _mm_storeu_si128(static_cast<__m128i*>(even), _mm_unpacklo_epi16(lower, upper));
  _mm_storeu_si128(static_cast<__m128i*>(odd), _mm_unpackhi_epi16(lower, upper));
}

// The largest magnitude of 32 floats, as bits.
HWY_INLINE int32_t LargestMagnitude(const __m256 (&values)[4]) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i bits = _mm256_setzero_si256();
  for (const __m256 value : values) {
    bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(value), mask));
  }
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xB1));
  return _mm_cvtsi128_si32(half);
}

HWY_INLINE void LoadGroup(const float* x, __m256 (&values)[4]) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < 4; ++i) values[i] = _mm256_loadu_ps(x + 8 * i);
}

// values * factor as integers; false where that is not exact.
HWY_INLINE bool ToIntegers(const __m256 (&values)[4], float factor, __m256i (&integers)[4]) {
  __m256 differ = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256 scaled = _mm256_mul_ps(values[i], _mm256_set1_ps(factor));
    integers[i] = _mm256_cvtps_epi32(scaled);
    differ =
        _mm256_or_ps(differ, _mm256_cmp_ps(_mm256_cvtepi32_ps(integers[i]), scaled, _CMP_NEQ_UQ));
  }
  return _mm256_movemask_ps(differ) == 0;
}

}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of each instruction set
