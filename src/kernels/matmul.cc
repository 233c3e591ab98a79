// Matrix products that read weights as stored. Vectors run along the inputs, because the
// canonical sum is eight partial sums (kernels.h); speed comes from several rows and outputs at
// once, whose partial sums are independent chains of fused multiply-adds.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Always eight lanes, whatever the target has, since eight partial sums are the contract.
using D = hn::FixedTag<float, reference::kLanes>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = reference::kLanes;
constexpr int64_t kGroup = reference::kScaleGroup;
constexpr int64_t kOutputBlock = 8;   // outputs decoded together
constexpr int64_t kRowBlock = 64;     // rows that share one decoded tile
constexpr int64_t kInputBlock = 512;  // inputs of a tile: 16 KiB of floats, half a level-1 cache

// Partial sums of a block of rows and outputs: [rows][kOutputBlock][kLanes].
constexpr int64_t kRowSums = kOutputBlock * kLanes;

// Eight E4M3 codes. The seven magnitude bits at the top of the float32 mantissa are the value
// times 2^-120, subnormals included; NaN codes are the caller's business.
HWY_INLINE V DecodeE4M3(const uint8_t* codes) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  const auto wide = hn::PromoteTo(d32, hn::LoadU(d8, reinterpret_cast<const int8_t*>(codes)));
  const auto mask = hn::Set(d32, static_cast<int32_t>(0x87F00000u));
  const auto pattern = hn::And(hn::ShiftLeft<20>(wide), mask);
  return hn::Mul(hn::BitCast(D(), pattern), hn::Set(D(), 0x1p120f));
}

HWY_INLINE bool HasNan(const uint8_t* codes) {
  const hn::FixedTag<uint8_t, kGroup> d8;
  const auto nan = hn::Set(d8, 0x7F);
  return !hn::AllFalse(d8, hn::Eq(hn::And(hn::LoadU(d8, codes), nan), nan));
}

// One group of 32 E4M3 codes.
HWY_INLINE void DecodeFp8Group(const uint8_t* codes, float scale, float* HWY_RESTRICT out) {
  if (HasNan(codes)) {
    for (int64_t i = 0; i < kGroup; ++i) out[i] = minke::DecodeE4M3(codes[i]) * scale;
    return;
  }
  const V factor = hn::Set(D(), scale);
  for (int64_t i = 0; i < kGroup; i += kLanes) {
    hn::StoreU(hn::Mul(DecodeE4M3(codes + i), factor), D(), out + i);
  }
}

// 32 E2M1 codes of 16 bytes become the E4M3 codes of the same numbers, in channel order, by one
// table lookup; from there on both formats share the code above.
HWY_INLINE void ExpandFp4Group(const uint8_t* pairs, uint8_t* HWY_RESTRICT codes) {
  alignas(16) static constexpr std::array<uint8_t, 16> kE4M3OfE2M1 = {
      0x00, 0x30, 0x38, 0x3C, 0x40, 0x44, 0x48, 0x4C,
      0x80, 0xB0, 0xB8, 0xBC, 0xC0, 0xC4, 0xC8, 0xCC};
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::Repartition<uint16_t, decltype(d8)> d16;
  const auto table = hn::Load(d8, kE4M3OfE2M1.data());
  const auto low_nibble = hn::Set(d8, 0x0F);
  const auto bytes = hn::LoadU(d8, pairs);
  const auto high_bits = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, bytes)));
  const auto even = hn::TableLookupBytes(table, hn::And(bytes, low_nibble));
  const auto odd = hn::TableLookupBytes(table, hn::And(high_bits, low_nibble));
  hn::StoreU(hn::InterleaveLower(even, odd), d8, codes);
  hn::StoreU(hn::InterleaveUpper(d8, even, odd), d8, codes + 16);
}

HWY_INLINE void DecodeFp4Group(const uint8_t* pairs, float scale, float* HWY_RESTRICT out) {
  alignas(32) std::array<uint8_t, kGroup> codes;
  ExpandFp4Group(pairs, codes.data());
  const V factor = hn::Set(D(), scale);
  for (int64_t i = 0; i < kGroup; i += kLanes) {
    hn::StoreU(hn::Mul(DecodeE4M3(&codes[i]), factor), D(), out + i);
  }
}

HWY_INLINE void DecodeBf16Span(const uint16_t* words, int64_t count, float* HWY_RESTRICT out) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto wide = hn::PromoteTo(d32, hn::LoadU(d16, words + i));
    hn::StoreU(hn::BitCast(D(), hn::ShiftLeft<16>(wide)), D(), out + i);
  }
  for (; i < count; ++i) out[i] = DecodeBf16(words[i]);
}

// Floats of inputs [begin, begin + count) of weight row `row`; begin is a multiple of 32.
HWY_INLINE void DecodeWeights(const Weight& w, int64_t row, int64_t begin, int64_t count,
                              float* HWY_RESTRICT out) {
  const auto* data = reinterpret_cast<const uint8_t*>(w.data);
  if (w.format == WeightFormat::kBf16) {
    DecodeBf16Span(reinterpret_cast<const uint16_t*>(data) + row * w.cols + begin, count, out);
    return;
  }
  const bool is_fp8 = w.format == WeightFormat::kFp8Tile32;
  const int64_t tiles = (w.cols + kGroup - 1) / kGroup;
  const uint8_t* codes = is_fp8 ? data + row * w.cols + begin : data + (row * w.cols + begin) / 2;
  const uint8_t* scales = w.scales + (is_fp8 ? row / kGroup : row) * tiles + begin / kGroup;
  int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup) {
    const float scale = DecodeUe8m0(scales[i / kGroup]);
    if (is_fp8) {
      DecodeFp8Group(codes + i, scale, out + i);
    } else {
      DecodeFp4Group(codes + i / 2, scale, out + i);
    }
  }
  for (; i < count; ++i) {  // a partial last tile, which only FP8 can have
    out[i] = minke::DecodeE4M3(codes[i]) * DecodeUe8m0(scales[i / kGroup]);
  }
}

// sums[r][n] += products of `steps` vectors of x row r and w row n.
template <int kRows, int kOutputs>
HWY_INLINE void AccumulateTile(const float* HWY_RESTRICT x, int64_t x_stride,
                               const float* HWY_RESTRICT w, int64_t w_stride, int64_t steps,
                               float* HWY_RESTRICT sums) {
  const D d;
  V sum[kRows][kOutputs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) sum[r][n] = hn::LoadU(d, sums + r * kRowSums + n * kLanes);
  }
  for (int64_t i = 0; i < steps * kLanes; i += kLanes) {
    V input[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) input[r] = hn::LoadU(d, x + r * x_stride + i);
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) {
      const V weight = hn::LoadU(d, w + n * w_stride + i);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][n] = hn::MulAdd(input[r], weight, sum[r][n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) hn::StoreU(sum[r][n], d, sums + r * kRowSums + n * kLanes);
  }
}

// A tile of weights as floats and where its rows begin.
struct Tile {
  const float* data;
  int64_t stride;
  int64_t outputs;
  int64_t count;  // inputs
};

template <int kRows>
HWY_INLINE void AccumulateRows(const float* x, int64_t x_stride, const Tile& tile, float* sums) {
  const int64_t steps = tile.count / kLanes;
  int64_t n = 0;
  if constexpr (kRows == 1) {
    for (; n + 8 <= tile.outputs; n += 8) {
      AccumulateTile<1, 8>(x, x_stride, tile.data + n * tile.stride, tile.stride, steps,
                           sums + n * kLanes);
    }
  }
  for (; n + 4 <= tile.outputs; n += 4) {
    AccumulateTile<kRows, 4>(x, x_stride, tile.data + n * tile.stride, tile.stride, steps,
                             sums + n * kLanes);
  }
  for (; n < tile.outputs; ++n) {
    AccumulateTile<kRows, 1>(x, x_stride, tile.data + n * tile.stride, tile.stride, steps,
                             sums + n * kLanes);
  }
  // Inputs behind the last whole vector go to the first lanes, as in the canonical sum.
  for (int64_t i = steps * kLanes; i < tile.count; ++i) {
    for (int r = 0; r < kRows; ++r) {
      for (n = 0; n < tile.outputs; ++n) {
        float& lane = sums[r * kRowSums + n * kLanes + i - steps * kLanes];
        lane = std::fma(x[r * x_stride + i], tile.data[n * tile.stride + i], lane);
      }
    }
  }
}

// At most kRowBlock rows times at most kOutputBlock outputs. make_tile(begin, count) yields the
// Tile of inputs [begin, begin + count).
template <typename MakeTile>
HWY_INLINE void ProductBlock(View<const float> x, int64_t outputs, float* y, int64_t y_stride,
                             const MakeTile& make_tile) {
  alignas(64) std::array<float, kRowBlock * kRowSums> sums;
  std::fill_n(sums.begin(), x.rows * kRowSums, 0.0f);
  for (int64_t begin = 0; begin < x.cols; begin += kInputBlock) {
    const Tile tile = make_tile(begin, std::min(kInputBlock, x.cols - begin));
    int64_t r = 0;
    const auto row = [&](int64_t index) { return x.data + index * x.stride + begin; };
    for (; r + 3 <= x.rows; r += 3) {
      AccumulateRows<3>(row(r), x.stride, tile, &sums[r * kRowSums]);
    }
    if (x.rows - r == 2) AccumulateRows<2>(row(r), x.stride, tile, &sums[r * kRowSums]);
    if (x.rows - r == 1) AccumulateRows<1>(row(r), x.stride, tile, &sums[r * kRowSums]);
  }
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t n = 0; n < outputs; ++n) {
      y[r * y_stride + n] = reference::ReduceLanes(&sums[r * kRowSums + n * kLanes]);
    }
  }
}

void Product(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  const int64_t row_blocks = (x.rows + kRowBlock - 1) / kRowBlock;
  const int64_t output_blocks = (w.rows + kOutputBlock - 1) / kOutputBlock;
  pool.ParallelFor(row_blocks * output_blocks, 1, [&](int64_t begin, int64_t end, int) {
    alignas(64) std::array<float, kOutputBlock * kInputBlock> decoded;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t row = unit % row_blocks * kRowBlock;
      const int64_t output = unit / row_blocks * kOutputBlock;
      const int64_t outputs = std::min(kOutputBlock, w.rows - output);
      const auto make_tile = [&](int64_t first, int64_t count) {
        if (w.format == WeightFormat::kF32) {
          const auto* floats = reinterpret_cast<const float*>(w.data);
          return Tile{floats + output * w.cols + first, w.cols, outputs, count};
        }
        for (int64_t n = 0; n < outputs; ++n) {
          DecodeWeights(w, output + n, first, count, &decoded[n * kInputBlock]);
        }
        return Tile{decoded.data(), kInputBlock, outputs, count};
      };
      ProductBlock(x.Rows(row, std::min(kRowBlock, x.rows - row)), outputs,
                   y.data + row * y.stride + output, y.stride, make_tile);
    }
  });
}

void DotTileImpl(const DotTileArguments& a) {
  for (int64_t row = 0; row < a.rows; row += kRowBlock) {
    const View<const float> x(a.x + row * a.x_stride, std::min(kRowBlock, a.rows - row), a.cols,
                              a.x_stride);
    for (int64_t output = 0; output < a.outputs; output += kOutputBlock) {
      const int64_t outputs = std::min(kOutputBlock, a.outputs - output);
      ProductBlock(x, outputs, a.y + row * a.y_stride + output, a.y_stride,
                   [&](int64_t first, int64_t count) {
                     return Tile{a.w + output * a.w_stride + first, a.w_stride, outputs, count};
                   });
    }
  }
}

// Compressed rows have a scale per 16 channels, so two scales a group of 32 codes.
HWY_INLINE void DecodeFp4Group16Row(const uint8_t* packed, int64_t channels,
                                    float* HWY_RESTRICT out) {
  alignas(32) std::array<uint8_t, kGroup> codes;
  const uint8_t* scales = packed + channels / 2;
  for (int64_t i = 0; i < channels; i += kGroup) {
    ExpandFp4Group(packed + i / 2, codes.data());
    for (int64_t j = 0; j < kGroup; j += kLanes) {
      const V factor = hn::Set(D(), minke::DecodeE4M3(scales[(i + j) / 16]));
      hn::StoreU(hn::Mul(DecodeE4M3(&codes[j]), factor), D(), out + i + j);
    }
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
    } else {
      const bool is_fp8 = format == RowFormat::kFp8Group32;
      const uint8_t* scales = bytes + (is_fp8 ? channels : channels / 2);
      for (int64_t i = 0; i < channels; i += kGroup) {
        const float scale = DecodeUe8m0(scales[i / kGroup]);
        if (is_fp8) {
          DecodeFp8Group(bytes + i, scale, out + i);
        } else {
          DecodeFp4Group(bytes + i / 2, scale, out + i);
        }
      }
    }
    out += channels;
  }
}

const char* TargetNameImpl() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(Product);
HWY_EXPORT(DotTileImpl);
HWY_EXPORT(DecodeRowsImpl);
HWY_EXPORT(TargetNameImpl);

void Matmul(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  CHECK(x.cols == w.cols && y.cols == w.rows && x.rows == y.rows);
  HWY_DYNAMIC_DISPATCH(Product)(x, w, y, pool);
}

void DotTile(const DotTileArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(DotTileImpl)(arguments);
}

void DecodeRows(RowFormat format, std::span<const std::byte* const> packed, int64_t channels,
                float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeRowsImpl)(format, packed, channels, out);
}

const char* RunningTarget() {
  return HWY_DYNAMIC_DISPATCH(TargetNameImpl)();
}

}  // namespace minke::simd
#endif
