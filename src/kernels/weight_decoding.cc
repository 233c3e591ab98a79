// Reading FP8, FP4 and BF16 as stored: weights and cache rows to float32, and the products of
// few rows with FP8 and BF16 weights, which are little else than decoding.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weight_decoding.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, reference::kLanes>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = reference::kLanes;
constexpr int64_t kGroup = reference::kScaleGroup;
constexpr int64_t kOutputBlock = 8;  // outputs whose weights are read side by side

// The seven magnitude bits of an E4M3 code at the top of the float32 mantissa are the value times
// 2^-120, subnormals included.
constexpr int kPatternShift = 20;
constexpr float kPatternScale = 0x1p120f;

// Eight codes as floats, times 2^-120. NaN codes are the caller's business.
HWY_INLINE V LoadPatterns(const uint8_t* codes) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const auto wide = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
  const auto mask = hn::Set(d32, static_cast<int32_t>(0x87F00000u));
  return hn::BitCast(D(), hn::And(hn::ShiftLeft<kPatternShift>(wide), mask));
}

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

// 2^120 * scale at once, for codes that keep it finite. The product rounds like both
// multiplications one after the other, because the first of them is exact.
constexpr int kScaleCodeMax = 127 + 7;
HWY_INLINE V PatternFactor(int code) {
  return hn::BitCast(D(), hn::Set(hn::Rebind<int32_t, D>(), (code + 120) << 23));
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
  const V factor = PatternFactor(scale);
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

// ---- few rows -------------------------------------------------------------------------------
// Few rows read the weights once or a few times, so the decoded weights stay in registers. The
// products and their order are those of the canonical sum. x: the first of the rows, x_stride
// floats apart; y likewise.

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

// sum += x * decoded over one group.
HWY_INLINE V AddGroup(const float* x, const float* decoded, V sum) {
  for (int64_t i = 0; i < kGroup; i += kLanes) {
    sum = hn::MulAdd(hn::LoadU(D(), x + i), hn::LoadU(D(), decoded + i), sum);
  }
  return sum;
}

template <int kRows, int kOutputs>
HWY_INLINE void StoreSums(const V (&sum)[kRows][kOutputs], float* y, int64_t y_stride) {
  for (int r = 0; r < kRows; ++r) {
    alignas(32) std::array<float, kLanes * kOutputs> lanes;
    for (int n = 0; n < kOutputs; ++n) hn::Store(sum[r][n], D(), &lanes[n * kLanes]);
    int n = 0;
    for (; n + 4 <= kOutputs; n += 4) ReduceFour(&lanes[n * kLanes], y + r * y_stride + n);
    for (; n < kOutputs; ++n) y[r * y_stride + n] = reference::ReduceLanes(&lanes[n * kLanes]);
  }
}

// The largest scale code whose 2^120 * scale times any value of x is finite, or -1.
int ScaleCodeLimit(const float* x, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  }
  const int exponent = static_cast<int>(largest >> 23);  // biased by 127
  return exponent == 255 ? -1 : std::min<int>(kScaleCodeMax, 127 + 133 - exponent);
}

// Outputs of one tile row. They share the scales, so the scale goes into x, cheaper than into the
// weights. That changes no bit of the product, provided that x times it neither overflows
// (scale_limit) nor is made smaller (kScaleCodeMin).
constexpr int kScaleCodeMin = 7;  // 2^120 * scale >= 1

template <int kRows, int kOutputs>
HWY_INLINE void Fp8Outputs(const float* x, int64_t x_stride, int64_t cols, const uint8_t* codes,
                           const uint8_t* scales, int scale_limit, float* y, int64_t y_stride) {
  const hn::FixedTag<uint8_t, kGroup> d8;
  const auto nan = hn::Set(d8, 0x7F);
  V sum[kRows][kOutputs];
#pragma GCC unroll 8
  for (int i = 0; i < kRows * kOutputs; ++i) sum[i / kOutputs][i % kOutputs] = hn::Zero(D());
  for (int64_t i = 0; i < cols; i += kGroup) {
    auto largest = hn::Zero(d8);
    FetchNext<kOutputs>(codes, cols, i, kGroup);
#pragma GCC unroll 8
    for (int64_t n = 0; n < kOutputs; ++n) {
      largest = hn::Max(largest, hn::And(hn::LoadU(d8, codes + n * cols + i), nan));
    }
    const int scale = scales[i / kGroup];
    const bool is_special =
        scale < kScaleCodeMin || scale > scale_limit || !hn::AllFalse(d8, hn::Eq(largest, nan));
    if (HWY_UNLIKELY(is_special)) {
      std::array<float, kGroup> decoded;
      for (int64_t n = 0; n < kOutputs; ++n) {
        DecodeFp8Group(codes + n * cols + i, scales[i / kGroup], {decoded.data()});
        for (int r = 0; r < kRows; ++r) {
          sum[r][n] = AddGroup(x + r * x_stride + i, decoded.data(), sum[r][n]);
        }
      }
      continue;
    }
    const V factor = PatternFactor(scale);
#pragma GCC unroll 4
    for (int64_t j = i; j < i + kGroup; j += kLanes) {
      V input[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        input[r] = hn::Mul(hn::LoadU(D(), x + r * x_stride + j), factor);
      }
#pragma GCC unroll 8
      for (int64_t n = 0; n < kOutputs; ++n) {
        const V weight = LoadPatterns(codes + n * cols + j);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][n] = hn::MulAdd(input[r], weight, sum[r][n]);
      }
    }
  }
  StoreSums<kRows, kOutputs>(sum, y, y_stride);
}

HWY_INLINE V LoadWeights(const float* values) {
  return hn::LoadU(D(), values);
}
HWY_INLINE V LoadWeights(const uint16_t* words) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, words))));
}

// BF16 words or floats. REQUIRES: cols a multiple of kLanes.
template <int kRows, int kOutputs, typename T>
HWY_INLINE void FloatOutputs(const float* x, int64_t x_stride, int64_t cols, const T* weights,
                             float* y, int64_t y_stride) {
  constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
  V sum[kRows][kOutputs];
#pragma GCC unroll 8
  for (int i = 0; i < kRows * kOutputs; ++i) sum[i / kOutputs][i % kOutputs] = hn::Zero(D());
  for (int64_t begin = 0; begin < cols; begin += kLine) {
    FetchNext<kOutputs>(weights, cols, begin, kLine);
    const int64_t end = std::min(begin + kLine, cols);
    for (int64_t i = begin; i < end; i += kLanes) {
      V input[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) input[r] = hn::LoadU(D(), x + r * x_stride + i);
#pragma GCC unroll 8
      for (int64_t n = 0; n < kOutputs; ++n) {
        const V weight = LoadWeights(weights + n * cols + i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) sum[r][n] = hn::MulAdd(input[r], weight, sum[r][n]);
      }
    }
  }
  StoreSums<kRows, kOutputs>(sum, y, y_stride);
}

// Outputs [output, output + outputs) in the plain way: what the functions above leave out.
void PlainOutputs(const float* x, const Weight& w, int64_t output, int64_t outputs, float* y) {
  std::vector<float> decoded(w.cols);
  for (int64_t n = output; n < output + outputs; ++n) {
    reference::DecodeWeightRow(w, n, decoded.data());
    y[n] = reference::Dot(x, decoded.data(), w.cols);
  }
}

int64_t WeightBytes(WeightFormat format) {
  return format == WeightFormat::kF32 ? 4 : format == WeightFormat::kBf16 ? 2 : 1;
}

// `outputs` outputs from `output` on of kRows rows, kOutputs at a time.
template <int kRows, int kOutputs>
void OutputBlock(const View<const float>& x, const Weight& w, int64_t output, int64_t outputs,
                 int scale_limit, float* y, int64_t y_stride) {
  const int64_t groups = w.cols / kGroup;
  for (int64_t n = output; n < output + outputs; n += kOutputs) {
    const std::byte* row = w.data + n * w.cols * WeightBytes(w.format);
    if (w.format == WeightFormat::kBf16) {
      FloatOutputs<kRows, kOutputs>(x.data, x.stride, w.cols,
                                    reinterpret_cast<const uint16_t*>(row), y + n, y_stride);
    } else if (w.format == WeightFormat::kF32) {
      FloatOutputs<kRows, kOutputs>(x.data, x.stride, w.cols, reinterpret_cast<const float*>(row),
                                    y + n, y_stride);
    } else {
      Fp8Outputs<kRows, kOutputs>(x.data, x.stride, w.cols, reinterpret_cast<const uint8_t*>(row),
                                  w.scales + n / kGroup * groups, scale_limit, y + n, y_stride);
    }
  }
}

void FewRowsImpl(const View<const float>& x, const Weight& w, const View<float>& y,
                 ThreadPool& pool) {
  int scale_limit = kScaleCodeMax;
  for (int64_t r = 0; r < x.rows && w.format == WeightFormat::kFp8Tile32; ++r) {
    scale_limit = std::min(scale_limit, ScaleCodeLimit(x.Row(r), w.cols));
  }
  // The float32 weights of the model have few outputs (3.2): more blocks spread better.
  const int64_t block = w.format == WeightFormat::kF32 ? kOutputBlock / 2 : kOutputBlock;
  const int64_t blocks = (w.rows + block - 1) / block;
  pool.ParallelFor(
      blocks, pool.GrainFor(x.rows * block * w.cols), [&](int64_t begin, int64_t end, int) {
        for (int64_t n = begin * block; n < end * block; n += block) {
          if (n + block > w.rows) {
            for (int64_t r = 0; r < x.rows; ++r) {
              PlainOutputs(x.Row(r), w, n, w.rows - n, y.Row(r));
            }
            continue;
          }
          int64_t r = 0;
          for (; r + 4 <= x.rows; r += 4) {
            OutputBlock<4, 2>(x.Rows(r, 4), w, n, block, scale_limit, y.Row(r), y.stride);
          }
          for (; r + 2 <= x.rows; r += 2) {
            OutputBlock<2, 4>(x.Rows(r, 2), w, n, block, scale_limit, y.Row(r), y.stride);
          }
          if (r < x.rows && block == kOutputBlock) {
            OutputBlock<1, 8>(x.Rows(r, 1), w, n, block, scale_limit, y.Row(r), y.stride);
          } else if (r < x.rows) {
            OutputBlock<1, 4>(x.Rows(r, 1), w, n, block, scale_limit, y.Row(r), y.stride);
          }
        }
      });
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(DecodeWeightsImpl);
HWY_EXPORT(DecodeRowsImpl);
HWY_EXPORT(FewRowsImpl);

DecodeWeightsFunction WeightDecoder() {
  return &HWY_DYNAMIC_DISPATCH(DecodeWeightsImpl);
}

void DecodeRows(RowFormat format, std::span<const std::byte* const> packed, int64_t channels,
                float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeRowsImpl)(format, packed, channels, out);
}

void MatmulFewRows(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(FewRowsImpl)(x, w, y, pool);
}

}  // namespace minke::simd
#endif
