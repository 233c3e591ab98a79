// Products of float32 tiles, weights decoded a tile at a time. Vectors run along the inputs,
// because the canonical sum is eight partial sums (kernels.h); speed comes from several rows and
// outputs at once, whose partial sums are independent chains of fused multiply-adds.
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
constexpr int64_t kOutputBlock = 8;   // outputs decoded together
constexpr int64_t kRowBlock = 64;     // rows that share one decoded tile
constexpr int64_t kUnitOutputs = 32;  // outputs for which a block of rows stays in the cache
constexpr int64_t kInputBlock = 512;  // inputs of a tile: 16 KiB of floats, half a level-1 cache

// Partial sums of the rows and outputs of a tile: [kRowBlock][kOutputBlock][kLanes].
constexpr int64_t kRowSums = kOutputBlock * kLanes;
constexpr int64_t kTileSums = kRowBlock * kRowSums;

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

// The last additions of four canonical sums at once, in the order of reference::ReduceLanes.
HWY_INLINE void ReduceFour(const float* lanes, float* y) {
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

// At most kRowBlock rows times at most kUnitOutputs outputs. make_tile(output, outputs, input,
// inputs) yields a Tile of at most kOutputBlock outputs and kInputBlock inputs.
template <typename MakeTile>
HWY_INLINE void ProductBlock(View<const float> x, int64_t outputs, float* y, int64_t y_stride,
                             const MakeTile& make_tile) {
  alignas(64) std::array<float, kUnitOutputs / kOutputBlock * kTileSums> sums;
  for (int64_t first = 0; first < outputs; first += kOutputBlock) {
    std::fill_n(&sums[first / kOutputBlock * kTileSums], x.rows * kRowSums, 0.0f);
  }
  for (int64_t begin = 0; begin < x.cols; begin += kInputBlock) {
    for (int64_t first = 0; first < outputs; first += kOutputBlock) {
      const Tile tile = make_tile(first, std::min(kOutputBlock, outputs - first), begin,
                                  std::min(kInputBlock, x.cols - begin));
      float* out = &sums[first / kOutputBlock * kTileSums];
      const float* row = x.data + begin;
      int64_t left = x.rows;
      for (; left >= 3; left -= 3, row += 3 * x.stride, out += 3 * kRowSums) {
        AccumulateRows<3>(row, x.stride, tile, out);
      }
      if (left == 2) AccumulateRows<2>(row, x.stride, tile, out);
      if (left == 1) AccumulateRows<1>(row, x.stride, tile, out);
    }
  }
  for (int64_t r = 0; r < x.rows; ++r) {
    const auto lanes = [&](int64_t n) {
      return &sums[n / kOutputBlock * kTileSums + r * kRowSums + n % kOutputBlock * kLanes];
    };
    int64_t n = 0;
    for (; n + 4 <= outputs; n += 4) ReduceFour(lanes(n), y + r * y_stride + n);
    for (; n < outputs; ++n) y[r * y_stride + n] = reference::ReduceLanes(lanes(n));
  }
}

// At most kRowBlock rows times at most kUnitOutputs outputs from `output` on.
void ProductUnit(View<const float> x, const Weight& w, int64_t output, int64_t outputs, float* y,
                 int64_t y_stride, DecodeWeightsFunction decode) {
  alignas(64) std::array<float, kOutputBlock * kInputBlock> decoded;
  ProductBlock(x, outputs, y, y_stride,
               [&](int64_t first, int64_t count, int64_t input, int64_t inputs) {
                 if (w.format == WeightFormat::kF32) {
                   const auto* floats = reinterpret_cast<const float*>(w.data);
                   return Tile{floats + (output + first) * w.cols + input, w.cols, count, inputs};
                 }
                 for (int64_t n = 0; n < count; ++n) {
                   decode(w, output + first + n, input, inputs, &decoded[n * kInputBlock]);
                 }
                 return Tile{decoded.data(), kInputBlock, count, inputs};
               });
}

void Product(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  // Few rows are cheap to read again, and smaller units spread better over threads.
  const int64_t unit_outputs = x.rows < kRowBlock / 4 ? kOutputBlock : kUnitOutputs;
  const int64_t row_blocks = (x.rows + kRowBlock - 1) / kRowBlock;
  const int64_t output_blocks = (w.rows + unit_outputs - 1) / unit_outputs;
  const DecodeWeightsFunction decode = WeightDecoder();
  const int64_t unit_cost = std::min(x.rows, kRowBlock) * unit_outputs * w.cols;
  pool.ParallelFor(row_blocks * output_blocks, pool.GrainFor(unit_cost),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t unit = begin; unit < end; ++unit) {
                       const int64_t row = unit % row_blocks * kRowBlock;
                       const int64_t output = unit / row_blocks * unit_outputs;
                       const int64_t outputs = std::min(unit_outputs, w.rows - output);
                       ProductUnit(x.Rows(row, std::min(kRowBlock, x.rows - row)), w, output,
                                   outputs, y.data + row * y.stride + output, y.stride, decode);
                     }
                   });
}

void DotTileImpl(const DotTileArguments& a) {
  for (int64_t row = 0; row < a.rows; row += kRowBlock) {
    const View<const float> x(a.x + row * a.x_stride, std::min(kRowBlock, a.rows - row), a.cols,
                              a.x_stride);
    for (int64_t output = 0; output < a.outputs; output += kUnitOutputs) {
      ProductBlock(
          x, std::min(kUnitOutputs, a.outputs - output), a.y + row * a.y_stride + output,
          a.y_stride, [&](int64_t first, int64_t count, int64_t input, int64_t inputs) {
            return Tile{a.w + (output + first) * a.w_stride + input, a.w_stride, count, inputs};
          });
    }
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
HWY_EXPORT(TargetNameImpl);

void Matmul(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  CHECK(x.cols == w.cols && y.cols == w.rows && x.rows == y.rows);
  const bool few_rows =
      x.rows <= kFewRowsMax &&
      ((w.format == WeightFormat::kFp8Tile32 && w.cols % reference::kScaleGroup == 0) ||
       (w.format == WeightFormat::kBf16 && w.cols % reference::kLanes == 0));
  if (w.format == WeightFormat::kFp4Group32) {
    Fp4Product(x, w, y, pool);
  } else if (few_rows) {
    MatmulFewRows(x, w, y, pool);
  } else {
    HWY_DYNAMIC_DISPATCH(Product)(x, w, y, pool);
  }
}

void DotTile(const DotTileArguments& arguments) {
  HWY_DYNAMIC_DISPATCH(DotTileImpl)(arguments);
}

const char* RunningTarget() {
  return HWY_DYNAMIC_DISPATCH(TargetNameImpl)();
}

}  // namespace minke::simd
#endif
