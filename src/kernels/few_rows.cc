// Products of few rows with FP8, BF16 and float32 weights. Few rows read the weights once or a few
// times, so decoded weights stay in registers; the products and their order are those of the
// canonical sum (kernels.h).
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/few_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/few_rows-inl.h"
#include "kernels/fp8_patterns-inl.h"
#include "kernels/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::FixedTag<float, reference::kLanes>;
using V = hn::Vec<D>;
constexpr int64_t kLanes = reference::kLanes;
constexpr int64_t kGroup = reference::kScaleGroup;

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
  const D d;
  const hn::Rebind<int32_t, D> d32;
  auto largest = hn::Zero(d32);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    largest = hn::Max(largest, hn::BitCast(d32, hn::Abs(hn::LoadU(d, x + i))));
  }
  int32_t bits = hn::GetLane(hn::MaxOfLanes(d32, largest));
  for (; i < n; ++i) bits = std::max(bits, std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF);
  const int exponent = bits >> 23;  // biased by 127
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
        for (int64_t j = 0; j < kGroup; ++j) {
          decoded[static_cast<size_t>(j)] =
              DecodeE4M3(codes[n * cols + i + j]) * DecodeUe8m0(scales[i / kGroup]);
        }
        for (int r = 0; r < kRows; ++r) {
          sum[r][n] = AddGroup(x + r * x_stride + i, decoded.data(), sum[r][n]);
        }
      }
      continue;
    }
    const V factor = hn::Set(D(), PatternFactor(scale));
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

// ---- in vectors of 512 bits -----------------------------------------------------------------
#if HWY_MAX_BYTES == 64

constexpr int64_t kTileOutputs = kGroup;  // outputs that share the scales of FP8 weights

// f.template operator()<rows>(first row), for as many rows at once as registers hold.
template <typename F>
HWY_INLINE void ForRows(int64_t rows, const F& f) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  if (r + 3 == rows) return f.template operator()<3>(r);
  if (r + 2 <= rows) {
    f.template operator()<2>(r);
    r += 2;
  }
  if (r < rows) f.template operator()<1>(r);
}

bool ScalesFit(const uint8_t* scales, int64_t count, int limit) {
  if (limit < kScaleCodeMin) return false;
  const WideBytes d8;
  const auto low = hn::Set(d8, static_cast<uint8_t>(kScaleCodeMin));
  const auto high = hn::Set(d8, static_cast<uint8_t>(limit));
  for (int64_t i = 0; i < count; i += kLine) {
    const uint64_t mask = ~uint64_t{0} >> (kLine - std::min(kLine, count - i));
    const hn::Vec<WideBytes> codes{_mm512_maskz_loadu_epi8(mask, scales + i)};
    const uint64_t outside =
        _mm512_cmplt_epu8_mask(codes.raw, low.raw) | _mm512_cmpgt_epu8_mask(codes.raw, high.raw);
    if ((outside & mask) != 0) return false;
  }
  return true;
}

// Outputs [output, output + outputs) of a row of tiles. scaled: [4][cols], for the function.
void Fp8TileOutputs(View<const float> x, const Weight& w, int64_t output, int64_t outputs,
                    int scale_limit, float* scaled, View<float> y) {
  const int64_t groups = w.cols / kGroup;
  const uint8_t* scales = w.scales + output / kGroup * groups;
  const bool fit = ScalesFit(scales, groups, scale_limit);
  ForRows(x.rows, [&]<int kRows>(int64_t r) HWY_ATTR {
    if (fit) OrderInputs(x.Rows(r, kRows), scales, scaled);
    for (int64_t n = output; n < output + outputs; n += kOutputBlock) {
      const auto* codes = reinterpret_cast<const uint8_t*>(w.data) + n * w.cols;
      if (fit && WideOutputs<kRows>(scaled, w.cols, codes, y.Row(r) + n, y.stride)) continue;
      for (int64_t row = r; row < r + kRows; ++row) {
        OutputBlock<1, 8>(x.Rows(row, 1), w, n, kOutputBlock, scale_limit, y.Row(row), y.stride);
      }
    }
  });
}

// Whether outputs and inputs fill vectors.
bool IsWide(const Weight& w) {
  return (w.format == WeightFormat::kFp8Tile32 || w.format == WeightFormat::kBf16) &&
         w.rows % kOutputBlock == 0 && w.cols * WeightBytes(w.format) % kLine == 0;
}

void WideFp8Rows(View<const float> x, const Weight& w, View<float> y, int scale_limit,
                 ThreadPool& pool) {
  const int64_t tiles = (w.rows + kTileOutputs - 1) / kTileOutputs;
  pool.ParallelFor(tiles, pool.GrainFor(x.rows * kTileOutputs * w.cols),
                   [&](int64_t begin, int64_t end, int) {
                     const AlignedBytes scaled =
                         AllocateAligned(static_cast<size_t>(4 * w.cols) * sizeof(float));
                     for (int64_t tile = begin; tile < end; ++tile) {
                       const int64_t n = tile * kTileOutputs;
                       Fp8TileOutputs(x, w, n, std::min(kTileOutputs, w.rows - n), scale_limit,
                                      reinterpret_cast<float*>(scaled.get()), y);
                     }
                   });
}

void WideBf16Rows(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  std::vector<float> ordered(static_cast<size_t>(x.rows * x.cols));
  OrderInputs(x, nullptr, ordered.data());
  const auto* words = reinterpret_cast<const uint16_t*>(w.data);
  pool.ParallelFor(w.rows / kOutputBlock, pool.GrainFor(x.rows * kOutputBlock * w.cols),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t n = begin * kOutputBlock; n < end * kOutputBlock;
                          n += kOutputBlock) {
                       ForRows(x.rows, [&]<int kRows>(int64_t r) HWY_ATTR {
                         // Of one row the memory is all that counts, and it likes fewer streams.
                         constexpr int kFours = kRows == 1 ? 1 : 2;
                         for (int64_t m = n; m < n + kOutputBlock; m += 4 * kFours) {
                           WideOutputs<kRows, kFours>(ordered.data() + r * w.cols, w.cols,
                                                      words + m * w.cols, y.Row(r) + m, y.stride);
                         }
                       });
                     }
                   });
}

// False if these are no such weights, and nothing was done.
bool WideFewRows(View<const float> x, const Weight& w, View<float> y, int scale_limit,
                 ThreadPool& pool) {
  if (!IsWide(w)) return false;
  if (w.format == WeightFormat::kFp8Tile32) {
    WideFp8Rows(x, w, y, scale_limit, pool);
  } else {
    WideBf16Rows(x, w, y, pool);
  }
  return true;
}

// Unpacking a tile and adding up its partial sums is worth it for more rows the faster the rest is.
int64_t FewRowsMaxImpl(const Weight& w) {
  if (!IsWide(w)) return kFewRowsMax;
  return w.format == WeightFormat::kBf16 ? 4 * kFewRowsMax : 2 * kFewRowsMax;
}

#else

int64_t FewRowsMaxImpl(const Weight& /*w*/) {
  return kFewRowsMax;
}

bool WideFewRows(View<const float>, const Weight&, View<float>, int, ThreadPool&) {
  return false;
}

#endif  // vectors of 512 bits

void FewRowsImpl(const View<const float>& x, const Weight& w, const View<float>& y,
                 ThreadPool& pool) {
  int scale_limit = kScaleCodeMax;
  for (int64_t r = 0; r < x.rows && w.format == WeightFormat::kFp8Tile32; ++r) {
    scale_limit = std::min(scale_limit, ScaleCodeLimit(x.Row(r), w.cols));
  }
  if (WideFewRows(x, w, y, scale_limit, pool)) return;
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

HWY_EXPORT(FewRowsImpl);
HWY_EXPORT(FewRowsMaxImpl);

int64_t FewRowsMax(const Weight& w) {
  const bool has_groups =
      w.format == WeightFormat::kFp8Tile32 && w.cols % reference::kScaleGroup == 0;
  const bool has_lanes = (w.format == WeightFormat::kBf16 || w.format == WeightFormat::kF32) &&
                         w.cols % reference::kLanes == 0;
  return has_groups || has_lanes ? HWY_DYNAMIC_DISPATCH(FewRowsMaxImpl)(w) : 0;
}

void MatmulFewRows(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(FewRowsImpl)(x, w, y, pool);
}

}  // namespace minke::simd
#endif
