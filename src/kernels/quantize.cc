// Rounding and quantizing activations in place (architecture.md 0.3). The codes themselves are
// never needed here, so every format is a rounding of the float32 value to a coarser grid.
#include <array>
#include <bit>
#include <cmath>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantize.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, reference::kLanes>;
using D32 = hn::Rebind<int32_t, D>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = reference::kLanes;
constexpr int64_t kGroup = reference::kScaleGroup;

// Rounds the bit pattern to a multiple of 2^kDropped, ties to even.
template <int kDropped>
HWY_INLINE V RoundMantissa(V value) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<kDropped>(bits), hn::Set(d32, 1));
  const auto half = hn::Set(d32, (1 << (kDropped - 1)) - 1);
  const auto sum = hn::Add(hn::Add(bits, half), odd);
  return hn::BitCast(D(), hn::ShiftLeft<kDropped>(hn::ShiftRight<kDropped>(sum)));
}

HWY_INLINE V RoundToBf16(V value) {
  const V nan = hn::BitCast(D(), hn::Set(D32(), 0x7FC00000));
  return hn::IfThenElse(hn::IsNaN(value), nan, RoundMantissa<16>(value));
}

struct Q8 {
  static constexpr float kAmaxFloor = 1e-4f;
  static constexpr float kReciprocal = 1.0f / 448.0f;
  static constexpr float kLimit = 448.0f;
  static constexpr float kMinNormal = 0x1p-6f;    // of E4M3; below it the grid is 2^-9
  static constexpr float kGridShift = 0x1.8p14f;  // adding it rounds to multiples of 2^-9
  static constexpr int kDropped = 20;             // three mantissa bits stay
  static constexpr RowFormat kFormat = RowFormat::kFp8Group32;
};

struct Q4I {
  static constexpr float kAmaxFloor = 6 * 0x1p-126f;
  static constexpr float kReciprocal = 1.0f / 6.0f;
  static constexpr float kLimit = 6.0f;
  static constexpr float kMinNormal = 1.0f;  // of E2M1; below it the grid is 1/2
  static constexpr float kGridShift = 0x1.8p22f;
  static constexpr int kDropped = 22;  // one mantissa bit stays
  static constexpr RowFormat kFormat = RowFormat::kFp4Group32;
};

// x / s on the grid of the format, times s. Dividing by a power of two is multiplying by its
// reciprocal, which is a normal number for every scale that a finite maximum gives.
template <typename Format>
HWY_INLINE V QuantizeVector(V value, V scale, V reciprocal) {
  const D d;
  const V scaled = hn::Min(hn::Abs(hn::Mul(value, reciprocal)), hn::Set(d, Format::kLimit));
  const V shift = hn::Set(d, Format::kGridShift);
  const V small = hn::Sub(hn::Add(scaled, shift), shift);
  const V large = RoundMantissa<Format::kDropped>(scaled);
  const V magnitude = hn::IfThenElse(hn::Lt(scaled, hn::Set(d, Format::kMinNormal)), small, large);
  return hn::Mul(hn::CopySignToAbs(magnitude, value), scale);
}

template <typename Format>
HWY_INLINE void QuantizeGroup(const float* in, float* out) {
  const D d;
  const D32 d32;
  V value[kGroup / kLanes];
  auto largest = hn::BitCast(d32, hn::Set(d, Format::kAmaxFloor));
#pragma GCC unroll 4
  for (int64_t i = 0; i < kGroup / kLanes; ++i) {
    value[i] = RoundToBf16(hn::LoadU(d, in + i * kLanes));
    largest = hn::Max(largest, hn::BitCast(d32, hn::Abs(value[i])));
  }
  const auto amax = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(d32, largest)));
  if (!std::isfinite(amax)) {
    std::array<std::byte, RowBytes(Format::kFormat, kGroup)> packed;
    EncodeRow(Format::kFormat, {in, kGroup}, packed);
    DecodeRow(Format::kFormat, packed, {out, kGroup});
    return;
  }
  const float scale = Pow2Up(amax * Format::kReciprocal);
#pragma GCC unroll 4
  for (int64_t i = 0; i < kGroup / kLanes; ++i) {
    const V result = QuantizeVector<Format>(value[i], hn::Set(d, scale), hn::Set(d, 1.0f / scale));
    hn::StoreU(result, d, out + i * kLanes);
  }
}

template <typename Format>
HWY_INLINE void QuantizeRows(View<const float> x, View<float> y, ThreadPool& pool) {
  pool.ParallelFor(x.rows, reference::RowGrain(pool, x.cols), [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t i = 0; i < x.cols; i += kGroup) {
        QuantizeGroup<Format>(x.Row(t) + i, y.Row(t) + i);
      }
    }
  });
}

void QuantizeQ8Impl(View<const float> x, View<float> y, ThreadPool& pool) {
  QuantizeRows<Q8>(x, y, pool);
}

void QuantizeQ4IImpl(View<float> values, ThreadPool& pool) {
  QuantizeRows<Q4I>(values, values, pool);
}

void RoundImpl(View<float> values, ThreadPool& pool) {
  pool.ParallelFor(values.rows, reference::RowGrain(pool, values.cols),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t t = begin; t < end; ++t) {
                       float* row = values.Row(t);
                       int64_t i = 0;
                       for (; i + kLanes <= values.cols; i += kLanes) {
                         hn::StoreU(RoundToBf16(hn::LoadU(D(), row + i)), D(), row + i);
                       }
                       for (; i < values.cols; ++i) row[i] = RoundBf16(row[i]);
                     }
                   });
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(RoundImpl);
HWY_EXPORT(QuantizeQ8Impl);
HWY_EXPORT(QuantizeQ4IImpl);

void RoundBf16Rows(View<float> values, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(RoundImpl)(values, pool);
}

void QuantizeQ8(View<const float> x, View<float> y, ThreadPool& pool) {
  CHECK(x.rows == y.rows && x.cols == y.cols && x.cols % reference::kScaleGroup == 0);
  HWY_DYNAMIC_DISPATCH(QuantizeQ8Impl)(x, y, pool);
}

void QuantizeQ4I(View<float> values, ThreadPool& pool) {
  CHECK(values.cols % reference::kScaleGroup == 0);
  HWY_DYNAMIC_DISPATCH(QuantizeQ4IImpl)(values, pool);
}

}  // namespace minke::simd
#endif
