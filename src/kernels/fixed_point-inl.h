// What both products of FP4 weights share: activations in fixed point, and when integers are exact.
// Included once per instruction set, as Highway's own files of this kind are.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/reference.h"
#include "kernels/simd.h"

#include "kernels/integer_dots-inl.h"

#if defined(MINKE_KERNELS_FIXED_POINT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_FIXED_POINT_INL_H_
#undef MINKE_KERNELS_FIXED_POINT_INL_H_
#else
#define MINKE_KERNELS_FIXED_POINT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {

constexpr int kThirdBits = 3;
constexpr int kFixedBits = 14;         // fraction bits of two signed bytes under the exponent
constexpr float kFixedMax = 32639.0f;  // 127 * 256 + 127
// Units within which no product of powers of two leaves the normal floats by itself.
constexpr int kUnitExponentMin = -100;
constexpr int kUnitExponentMax = 90;

// 32 activations as integers of 16 bits and the kThirdBits below them.
struct FixedGroup {
  __m256i upper[4];
  __m256i third[4];
  __m256i sum;  // of whole integers, in lanes
  bool has_thirds;
  int unit_exponent;  // of what one stands for
};

// Returns false where the values are no such integers.
HWY_INLINE bool FixGroup(const float* x, FixedGroup& group) {
  __m256 values[4];
  LoadGroup(x, values);
  const int32_t largest = LargestMagnitude(values);
  const int exponent = largest == 0 ? 0 : (largest >> 23) - 127;
  group.unit_exponent = exponent - kFixedBits - kThirdBits;
  if (group.unit_exponent < kUnitExponentMin || group.unit_exponent > kUnitExponentMax) {
    return false;
  }
  const auto factor = std::bit_cast<float>((127 - group.unit_exponent) << 23);
  __m256i fixed[4];
  if (!ToIntegers(values, factor, fixed)) return false;
  if (std::bit_cast<float>(largest) * factor > kFixedMax * (1 << kThirdBits)) return false;
  __m256i thirds = _mm256_setzero_si256();
  group.sum = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    group.upper[i] = _mm256_srai_epi32(fixed[i], kThirdBits);
    group.third[i] = _mm256_sub_epi32(fixed[i], _mm256_slli_epi32(group.upper[i], kThirdBits));
    thirds = _mm256_or_si256(thirds, group.third[i]);
    group.sum = _mm256_add_epi32(group.sum, fixed[i]);
  }
  group.has_thirds = _mm256_testz_si256(thirds, thirds) == 0;
  return true;
}

// The value of one, for weights that are integers of twice the value.
HWY_INLINE float UnitOf(const FixedGroup& group) {
  return std::bit_cast<float>((127 + group.unit_exponent - 1) << 23);
}

// What is known of a row of x.
struct FixedRow {
  bool is_exact = true;  // the integers are the values
  int unit_min = kUnitExponentMax;
  int unit_max = kUnitExponentMin;

  void See(int unit_exponent) {
    unit_min = std::min(unit_min, unit_exponent - 1);
    unit_max = std::max(unit_max, unit_exponent - 1);
  }
};

// The smallest and largest of the scale codes seen.
struct ScaleRange {
  __m128i low = _mm_set1_epi8(-1);
  __m128i high = _mm_setzero_si128();

  void See(__m128i codes) {
    low = _mm_min_epu8(low, codes);
    high = _mm_max_epu8(high, codes);
  }
  int Low() const { return Smallest(low); }
  int High() const { return 255 - Smallest(_mm_xor_si128(high, _mm_set1_epi8(-1))); }

 private:
  static int Smallest(__m128i codes) {
    const __m128i pairs = _mm_min_epu8(codes, _mm_srli_epi16(codes, 8));
    return _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_and_si128(pairs, _mm_set1_epi16(0xFF)))) & 0xFF;
  }
};

// Whether unit * scale is a normal float for all of both; NaN and the subnormal scale are not.
inline bool AreNormal(const FixedRow& row, const ScaleRange& range) {
  const int low = range.Low();
  const int high = range.High();
  return low > 0 && high < 255 && row.unit_min + low - 127 >= -126 &&
         row.unit_max + high - 127 <= 127;
}

}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of each instruction set
