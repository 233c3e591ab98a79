// The last additions of canonical sums (architecture.md 0.2), several at once. Included once per
// instruction set, as Highway's own files of this kind are.
#include <cstdint>

#include <hwy/highway.h>

#include "kernels/reference.h"

#if defined(MINKE_KERNELS_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINKE_KERNELS_LANE_SUMS_INL_H_
#undef MINKE_KERNELS_LANE_SUMS_INL_H_
#else
#define MINKE_KERNELS_LANE_SUMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {

// y[n] = the canonical sum whose eight parts are at lanes + n * 8, for four n, in the order of
// reference::ReduceLanes.
HWY_INLINE void ReduceFour(const float* lanes, float* y) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr int64_t kLanes = reference::kLanes;
  const hn::FixedTag<float, 4> d4;
  const auto halves = [&](int64_t n) HWY_ATTR {
    return hn::Add(hn::LoadU(d4, lanes + n * kLanes), hn::LoadU(d4, lanes + n * kLanes + 4));
  };
  const auto pairs = [&](auto a, auto b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(d4, a, b), hn::InterleaveUpper(d4, a, b));
  };
  const auto first = pairs(halves(0), halves(1));
  const auto second = pairs(halves(2), halves(3));
  hn::StoreU(
      hn::Add(hn::ConcatLowerLower(d4, second, first), hn::ConcatUpperUpper(d4, second, first)), d4,
      y);
}

}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard of each instruction set
