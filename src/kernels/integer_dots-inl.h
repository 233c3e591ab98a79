// Pieces of the kernels that sum products of bytes. Included once per instruction set, as Highway's
// own files of this kind are. Written with intrinsics of AVX2, which every target has: this release
// of Highway does not know the multiply-adds of bytes.
#include <immintrin.h>

#include <cstdint>

#include <hwy/highway.h>

#if defined(MINKE_KERNELS_INTEGER_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_INTEGER_DOTS_INL_H_
#undef MINKE_KERNELS_INTEGER_DOTS_INL_H_
#else
#define MINKE_KERNELS_INTEGER_DOTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {

HWY_INLINE __m256i LoadBytes(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
HWY_INLINE void StoreBytes(__m256i value, void* to) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), value);
}

// Codes of four bits as bytes of a table of 16: those of the low nibbles, which are the even
// elements, and those of the high ones.
struct Unpacked {
  __m256i even;
  __m256i odd;
};
HWY_INLINE Unpacked Unpack(__m256i pairs, __m128i table) {
  const __m256i wide = _mm256_broadcastsi128_si256(table);
  const __m256i nibble = _mm256_set1_epi8(0x0F);
  return {_mm256_shuffle_epi8(wide, _mm256_and_si256(pairs, nibble)),
          _mm256_shuffle_epi8(wide, _mm256_and_si256(_mm256_srli_epi16(pairs, 4), nibble))};
}

// 16 bytes of each of eight rows, where row n + 4 is the upper half of rows[n]: quads[i] has the
// i-th 32 bits of every row, a row in each lane.
HWY_INLINE void TransposeEight(const __m256i (&rows)[4], __m256i (&quads)[4]) {
  const __m256i low01 = _mm256_unpacklo_epi32(rows[0], rows[1]);
  const __m256i low23 = _mm256_unpacklo_epi32(rows[2], rows[3]);
  const __m256i high01 = _mm256_unpackhi_epi32(rows[0], rows[1]);
  const __m256i high23 = _mm256_unpackhi_epi32(rows[2], rows[3]);
  quads[0] = _mm256_unpacklo_epi64(low01, low23);
  quads[1] = _mm256_unpackhi_epi64(low01, low23);
  quads[2] = _mm256_unpacklo_epi64(high01, high23);
  quads[3] = _mm256_unpackhi_epi64(high01, high23);
}

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

// Sums of adjacent pairs of products of an unpacked vector with even and odd elements.
HWY_INLINE __m256i DotPairs(const Unpacked& bytes, __m256i even, __m256i odd) {
  return _mm256_add_epi16(_mm256_maddubs_epi16(bytes.even, even),
                          _mm256_maddubs_epi16(bytes.odd, odd));
}

// [a, b, c, d] of the lower halves, then of the upper ones, each the sum of its four lanes.
HWY_INLINE __m256i SumLanes(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
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
