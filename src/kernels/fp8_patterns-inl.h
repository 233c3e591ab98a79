// E4M3 codes as floats without a table, for the kernels that read FP8. Included once per
// instruction set, as Highway's own files of this kind are.
#include <bit>
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/reference.h"

#if defined(MINKE_KERNELS_FP8_PATTERNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_FP8_PATTERNS_INL_H_
#undef MINKE_KERNELS_FP8_PATTERNS_INL_H_
#else
#define MINKE_KERNELS_FP8_PATTERNS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using PatternD = hn::FixedTag<float, reference::kLanes>;
using PatternV = hn::Vec<PatternD>;

// The seven magnitude bits of an E4M3 code at the top of the float32 mantissa are the value times
// 2^-120, subnormals included.
constexpr int kPatternShift = 20;
constexpr float kPatternScale = 0x1p120f;

// Eight codes as floats, times 2^-120. NaN codes are the caller's business.
HWY_INLINE PatternV LoadPatterns(const uint8_t* codes) {
  const hn::Rebind<int8_t, PatternD> d8;
  const hn::Rebind<int32_t, PatternD> d32;
  const auto wide = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
  const auto mask = hn::Set(d32, static_cast<int32_t>(0x87F00000u));
  return hn::BitCast(PatternD(), hn::And(hn::ShiftLeft<kPatternShift>(wide), mask));
}

// 2^120 * scale at once, for codes that keep it finite. The product rounds like both
// multiplications one after the other, because the first of them is exact.
constexpr int kScaleCodeMax = 127 + 7;
HWY_INLINE float PatternFactor(int code) {
  return std::bit_cast<float>((code + 120) << 23);
}

}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of each instruction set
