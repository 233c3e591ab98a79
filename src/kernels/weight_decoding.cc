// Reading FP8, FP4 and BF16 as stored: weights and cache rows to float32.
#include <algorithm>
#include <array>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weight_decoding.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fp8_patterns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, reference::kLanes>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = reference::kLanes;
constexpr int64_t kGroup = reference::kScaleGroup;

// Patterns of subnormal codes are subnormal floats, which some processors multiply slowly and
// multiply-add at full speed. Adding -0 keeps every value and the sign of zero.
HWY_INLINE V ScalePatterns(V patterns) {
  return hn::MulAdd(patterns, hn::Set(D(), kPatternScale), hn::Set(D(), -0.0f));
}

HWY_INLINE bool HasNan(const uint8_t* codes) {
  const hn::FixedTag<uint8_t, kGroup> d8;
  const auto nan = hn::Set(d8, 0x7F);
  return !hn::AllFalse(d8, hn::Eq(hn::And(hn::LoadU(d8, codes), nan), nan));
}

// Where decoded values go: vectors of kLanes, each `step` floats behind the one before.
struct Target {
  float* data;
  int64_t step = kLanes;

  float* Vector(int64_t i) const { return data + i / kLanes * step; }
  float& operator[](int64_t i) const { return Vector(i)[i % kLanes]; }
  Target From(int64_t i) const { return {Vector(i), step}; }  // i: a multiple of kLanes
};

// One group of 32 E4M3 codes with its scale code.
HWY_INLINE void DecodeFp8Group(const uint8_t* codes, uint8_t scale, Target out) {
  if (HWY_UNLIKELY(HasNan(codes) || scale > kScaleCodeMax)) {
    for (int64_t i = 0; i < kGroup; ++i) out[i] = DecodeE4M3(codes[i]) * DecodeUe8m0(scale);
    return;
  }
  const V factor = hn::Set(D(), PatternFactor(scale));
#pragma GCC unroll 4
  for (int64_t i = 0; i < kGroup; i += kLanes) {
    const V value = hn::MulAdd(LoadPatterns(codes + i), factor, hn::Set(D(), -0.0f));
    hn::StoreU(value, D(), out.Vector(i));
  }
}

// The four vectors of 32 E2M1 codes in 16 bytes, times 2^-120 like LoadPatterns. One table lookup
// makes them the E4M3 codes of the same numbers, and both halves of a vector hold all of them, so
// that one shuffle puts any eight at the tops of the 32-bit lanes.
struct Fp4Group {
  V vectors[kGroup / kLanes];
};
HWY_INLINE Fp4Group LoadFp4Patterns(const uint8_t* pairs) {
  alignas(16) static constexpr std::array<uint8_t, 16> kE4M3OfE2M1 = {
      0x00, 0x30, 0x38, 0x3C, 0x40, 0x44, 0x48, 0x4C,
      0x80, 0xB0, 0xB8, 0xBC, 0xC0, 0xC4, 0xC8, 0xCC};
  constexpr uint8_t kNone = 0x80;  // a zero byte
  alignas(32) static constexpr std::array<uint8_t, 32> kFirstEight = {
      kNone, kNone, kNone, 0,     kNone, kNone, kNone, 1,     kNone, kNone, kNone,
      2,     kNone, kNone, kNone, 3,     kNone, kNone, kNone, 4,     kNone, kNone,
      kNone, 5,     kNone, kNone, kNone, 6,     kNone, kNone, kNone, 7};
  const hn::FixedTag<uint8_t, 32> d8;
  const hn::Repartition<uint16_t, decltype(d8)> d16;
  const hn::Rebind<int32_t, D> d32;
  const auto table = hn::LoadDup128(d8, kE4M3OfE2M1.data());
  const auto low_nibble = hn::Set(d8, 0x0F);
  const auto bytes = hn::LoadDup128(d8, pairs);
  const auto high_bits = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes)));
  const auto even = hn::TableLookupBytes(table, hn::And(bytes, low_nibble));
  const auto odd = hn::TableLookupBytes(table, hn::And(high_bits, low_nibble));
  const auto first_half = hn::InterleaveLower(d8, even, odd);
  const auto second_half = hn::InterleaveUpper(d8, even, odd);
  const auto first_eight = hn::Load(d8, kFirstEight.data());
  const auto next_eight = hn::Or(first_eight, hn::Set(d8, 8));  // a zero byte stays one
  const auto mask = hn::Set(d32, static_cast<int32_t>(0x87F00000u));
  const auto pattern = [&](auto half, auto shuffle) HWY_ATTR {
    const auto tops = hn::BitCast(d32, hn::TableLookupBytesOr0(half, shuffle));
    return hn::BitCast(D(), hn::And(hn::ShiftRight<24 - kPatternShift>(tops), mask));
  };
  return {{pattern(first_half, first_eight), pattern(first_half, next_eight),
           pattern(second_half, first_eight), pattern(second_half, next_eight)}};
}

// One group of 32 E2M1 codes whose halves have the scales low and high.
HWY_INLINE void DecodeFp4Group(const uint8_t* pairs, float low, float high, Target out) {
  const Fp4Group group = LoadFp4Patterns(pairs);
#pragma GCC unroll 4
  for (int64_t i = 0; i < kGroup / kLanes; ++i) {
    const V value = ScalePatterns(group.vectors[i]);
    hn::StoreU(hn::Mul(value, hn::Set(D(), i < 2 ? low : high)), D(), out.Vector(i * kLanes));
  }
}

HWY_INLINE void DecodeBf16Span(const uint16_t* words, int64_t count, Target out) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto wide = hn::PromoteTo(d32, hn::LoadU(d16, words + i));
    hn::StoreU(hn::BitCast(D(), hn::ShiftLeft<16>(wide)), D(), out.Vector(i));
  }
  for (; i < count; ++i) out[i] = DecodeBf16(words[i]);
}

// `count` E4M3 codes and their scales, one a group; the last group may be shorter.
HWY_INLINE void DecodeFp8Span(const uint8_t* codes, const uint8_t* scales, int64_t count,
                              Target out) {
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    DecodeFp8Group(codes + i, scales[i / kGroup], out.From(i));
  }
  for (; i < count; ++i) out[i] = DecodeE4M3(codes[i]) * DecodeUe8m0(scales[i / kGroup]);
}

HWY_INLINE void DecodeFp4Span(const uint8_t* pairs, const uint8_t* scales, int64_t count,
                              Target out) {
  for (int64_t i = 0; i < count; i += kGroup) {
    const float scale = DecodeUe8m0(scales[i / kGroup]);
    DecodeFp4Group(pairs + i / 2, scale, scale, out.From(i));
  }
}

HWY_INLINE void CopySpan(const float* values, int64_t count, Target out) {
  for (int64_t i = 0; i < count; ++i) out[i] = values[i];
}

void DecodeWeightsImpl(const Weight& w, int64_t row, int64_t begin, int64_t count, float* out,
                       int64_t step) {
  const auto* data = reinterpret_cast<const uint8_t*>(w.data);
  const int64_t first = row * w.cols + begin;
  const int64_t tiles = (w.cols + kGroup - 1) / kGroup;
  const Target target{out, step};
  switch (w.format) {
    case WeightFormat::kF32:
      CopySpan(reinterpret_cast<const float*>(data) + first, count, target);
      break;
    case WeightFormat::kBf16:
      DecodeBf16Span(reinterpret_cast<const uint16_t*>(data) + first, count, target);
      break;
    case WeightFormat::kFp8Tile32:
      DecodeFp8Span(data + first, w.scales + row / kGroup * tiles + begin / kGroup, count, target);
      break;
    case WeightFormat::kFp4Group32:
      DecodeFp4Span(data + first / 2, w.scales + row * tiles + begin / kGroup, count, target);
      break;
  }
}

// Compressed rows have a scale per 16 channels, so two scales a group of 32 codes.
HWY_INLINE void DecodeFp4Group16Row(const uint8_t* packed, int64_t channels, float* out) {
  const uint8_t* scales = packed + channels / 2;
  for (int64_t i = 0; i < channels; i += kGroup) {
    DecodeFp4Group(packed + i / 2, DecodeE4M3(scales[i / 16]), DecodeE4M3(scales[i / 16 + 1]),
                   {out + i});
  }
}

void DecodeRowsImpl(RowFormat format, std::span<const std::byte* const> packed, int64_t channels,
                    float* out) {
  for (const std::byte* row : packed) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(row);
    if (format == RowFormat::kF32 || channels % kGroup != 0) {
      DecodeRow(format, {row, static_cast<size_t>(RowBytes(format, channels))},
                {out, static_cast<size_t>(channels)});
    } else if (format == RowFormat::kFp4Group16) {
      DecodeFp4Group16Row(bytes, channels, out);
    } else if (format == RowFormat::kFp8Group32) {
      DecodeFp8Span(bytes, bytes + channels, channels, {out});
    } else {
      DecodeFp4Span(bytes, bytes + channels / 2, channels, {out});
    }
    out += channels;
  }
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(DecodeWeightsImpl);
HWY_EXPORT(DecodeRowsImpl);

DecodeWeightsFunction WeightDecoder() {
  return &HWY_DYNAMIC_DISPATCH(DecodeWeightsImpl);
}

void DecodeRows(RowFormat format, std::span<const std::byte* const> packed, int64_t channels,
                float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeRowsImpl)(format, packed, channels, out);
}

}  // namespace minke::simd
#endif
