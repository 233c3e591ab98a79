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

#include "kernels/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Always eight lanes, whatever the target has, since eight partial sums are the contract.
using D = hn::FixedTag<float, reference::kLanes>;
using V = hn::Vec<D>;

constexpr int64_t kLanes = reference::kLanes;
// Rows summed together: with four outputs, or eight in vectors of two, as many as registers hold.
constexpr int64_t kTogether = HWY_MAX_BYTES == 64 ? 6 : 3;
constexpr int64_t kOutputBlock = 8;  // outputs decoded together
// Rows that share one decoded tile, a multiple of kTogether, and outputs for which a block of rows
// stays in the cache. Faster sums want more rows for what decoding takes; both together fill the
// partial sums of a unit.
constexpr int64_t kRowBlock = HWY_MAX_BYTES == 64 ? 96 : 48;
constexpr int64_t kUnitOutputs = HWY_MAX_BYTES == 64 ? 64 : 128;
constexpr int64_t kInputBlock = 512;  // inputs of a tile: 16 KiB of floats, half a level-1 cache
constexpr int64_t kLineFloats = 16;
constexpr int64_t kUnitsPerThread = 6;  // at least, if there are outputs enough

// Partial sums of the rows and outputs of a tile: [kRowBlock][kOutputBlock][kLanes].
constexpr int64_t kRowSums = kOutputBlock * kLanes;
constexpr int64_t kTileSums = kRowBlock * kRowSums;

// Floats as vectors along the inputs: vector s of line i. Where strides are constants, all lines
// need one pointer.
struct Lines {
  const float* data;
  int64_t stride;

  HWY_INLINE const float* At(int64_t line, int64_t vector) const {
    return data + line * stride + vector * kLanes;
  }
  HWY_INLINE Lines From(int64_t line) const { return {At(line, 0), stride}; }
};
template <int64_t kCount>
struct PackedLines {  // [vectors][kCount][kLanes]
  const float* data;

  HWY_INLINE const float* At(int64_t line, int64_t vector) const {
    return data + (vector * kCount + line) * kLanes;
  }
  HWY_INLINE PackedLines From(int64_t line) const { return {At(line, 0)}; }
};

// Rows of x in the order in which a product reads them: block of inputs by block, in a block
// kTogether rows by kTogether rows, of those vector beside vector. What is missing in the last rows
// and vectors is zero, which changes no sum.
class PackedRows {
 public:
  PackedRows(View<const float> x, ThreadPool& pool)
      : groups_((x.rows + kTogether - 1) / kTogether),
        vectors_((x.cols + kLanes - 1) / kLanes),
        memory_(AllocateAligned(static_cast<size_t>(groups_ * vectors_ * kTogether * kLanes) *
                                sizeof(float))) {
    pool.ParallelFor(groups_, pool.GrainFor(x.cols * kTogether),
                     [&](int64_t begin, int64_t end, int) {
                       for (int64_t group = begin; group < end; ++group) Pack(x, group);
                     });
  }

  // Inputs [begin, begin + kInputBlock) of a group. REQUIRES: begin is a multiple of kInputBlock.
  PackedLines<kTogether> Group(int64_t group, int64_t begin) const {
    const int64_t vectors = std::min(kInputBlock / kLanes, vectors_ - begin / kLanes);
    return {data() + (begin / kLanes * groups_ + group * vectors) * kTogether * kLanes};
  }

 private:
  float* data() const { return reinterpret_cast<float*>(memory_.get()); }

  void Pack(View<const float> x, int64_t group) {
    for (int64_t begin = 0; begin < x.cols; begin += kInputBlock) {
      float* to = data() + (Group(group, begin).data - data());
      for (int64_t i = begin; i < std::min(begin + kInputBlock, x.cols); i += kLanes) {
        for (int64_t r = group * kTogether; r < (group + 1) * kTogether; ++r, to += kLanes) {
          if (r < x.rows && i + kLanes <= x.cols) {
            hn::StoreU(hn::LoadU(D(), x.Row(r) + i), D(), to);
            continue;
          }
          hn::StoreU(hn::Zero(D()), D(), to);
          if (r < x.rows) std::copy_n(x.Row(r) + i, x.cols - i, to);
        }
      }
    }
  }

  int64_t groups_;
  int64_t vectors_;
  AlignedBytes memory_;
};

// sums[r][n] += products of `vectors` vectors of line r of x and line n of w. kFetch: the vectors
// that follow as many vectors later are fetched.
template <int kRows, int kOutputs, bool kFetch, typename X, typename W>
HWY_INLINE void AccumulateTile(X x, W w, int64_t vectors, float* HWY_RESTRICT sums) {
  const D d;
  V sum[kRows][kOutputs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) sum[r][n] = hn::LoadU(d, sums + r * kRowSums + n * kLanes);
  }
  for (int64_t i = 0; i < vectors; ++i) {
    V input[kRows];
    if constexpr (kFetch) {
      const float* ahead = x.At(0, i + vectors);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + kLineFloats);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) input[r] = hn::LoadU(d, x.At(r, i));
#pragma GCC unroll 8
    for (int n = 0; n < kOutputs; ++n) {
      const V weight = hn::LoadU(d, w.At(n, i));
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

// A tile of weights as floats.
struct Tile {
  Lines lines;
  int64_t outputs;
  int64_t count;  // inputs
};

template <int kRows>
HWY_INLINE void AccumulateRows(Lines x, const Tile& tile, float* sums) {
  const int64_t vectors = tile.count / kLanes;
  int64_t n = 0;
  if (tile.outputs >= 4) {
    AccumulateTile<kRows, 4, true>(x, tile.lines, vectors, sums);
    n = 4;
  }
  for (; n + 4 <= tile.outputs; n += 4) {
    AccumulateTile<kRows, 4, false>(x, tile.lines.From(n), vectors, sums + n * kLanes);
  }
  for (; n < tile.outputs; ++n) {
    AccumulateTile<kRows, 1, false>(x, tile.lines.From(n), vectors, sums + n * kLanes);
  }
  // Inputs behind the last whole vector go to the first lanes, as in the canonical sum.
  for (int64_t i = 0; i < tile.count % kLanes; ++i) {
    for (int r = 0; r < kRows; ++r) {
      for (n = 0; n < tile.outputs; ++n) {
        float& lane = sums[r * kRowSums + n * kLanes + i];
        lane = std::fma(x.At(r, vectors)[i], tile.lines.At(n, vectors)[i], lane);
      }
    }
  }
}

// The same for kTogether rows and a whole tile of packed lines, two outputs in a vector of 512
// bits.
HWY_INLINE void AccumulatePacked(PackedLines<kTogether> x, PackedLines<kOutputBlock> w,
                                 int64_t vectors, float* HWY_RESTRICT sums) {
#if HWY_MAX_BYTES == 64
  const hn::FixedTag<float, 2 * kLanes> d;
  constexpr int kPairs = kOutputBlock / 2;
  hn::Vec<decltype(d)> sum[kTogether][kPairs];
#pragma GCC unroll 8
  for (int r = 0; r < kTogether; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < kPairs; ++n) {
      sum[r][n] = hn::LoadU(d, sums + r * kRowSums + n * 2 * kLanes);
    }
  }
  for (int64_t i = 0; i < vectors; ++i) {
    const float* ahead = x.At(0, i + vectors);
#pragma GCC unroll 4
    for (int64_t line = 0; line < kTogether * kLanes; line += kLineFloats) {
      __builtin_prefetch(ahead + line);
    }
    hn::Vec<decltype(d)> weights[kPairs];
#pragma GCC unroll 4
    for (int n = 0; n < kPairs; ++n) weights[n] = hn::Load(d, w.At(2 * n, i));
#pragma GCC unroll 8
    for (int r = 0; r < kTogether; ++r) {
      const hn::Vec<decltype(d)> input{_mm512_broadcast_f32x8(_mm256_loadu_ps(x.At(r, i)))};
#pragma GCC unroll 4
      for (int n = 0; n < kPairs; ++n) sum[r][n] = hn::MulAdd(input, weights[n], sum[r][n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTogether; ++r) {
#pragma GCC unroll 4
    for (int n = 0; n < kPairs; ++n) {
      hn::StoreU(sum[r][n], d, sums + r * kRowSums + n * 2 * kLanes);
    }
  }
#else
  AccumulateTile<kTogether, 4, true>(x, w, vectors, sums);
  AccumulateTile<kTogether, 4, false>(x, w.From(4), vectors, sums + 4 * kLanes);
#endif
}

using UnitSums = std::array<float, kUnitOutputs / kOutputBlock * kTileSums>;

// y[r][n] = the canonical sum whose parts are in `sums`, for `rows` rows and `outputs` outputs.
void ReduceUnit(const UnitSums& sums, int64_t rows, int64_t outputs, float* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r) {
    const auto lanes = [&](int64_t n) {
      return &sums[n / kOutputBlock * kTileSums + r * kRowSums + n % kOutputBlock * kLanes];
    };
    int64_t n = 0;
    for (; n + 4 <= outputs; n += 4) ReduceFour(lanes(n), y + r * y_stride + n);
    for (; n < outputs; ++n) y[r * y_stride + n] = reference::ReduceLanes(lanes(n));
  }
}

// Fetches the weights of a tile from memory; behind the last input there are none.
HWY_INLINE void FetchTile(const Weight& w, int64_t output, int64_t begin) {
  constexpr int64_t kLineBytes = 64;
  const int64_t bits = w.format == WeightFormat::kF32    ? 32
                       : w.format == WeightFormat::kBf16 ? 16
                                                         : 8;
  const int64_t bytes = std::min(kInputBlock, w.cols - begin) * bits / 8;
  for (int64_t n = output; n < std::min(output + kOutputBlock, w.rows); ++n) {
    const std::byte* from = w.data + (n * w.cols + begin) * bits / 8;
    for (int64_t line = 0; line < bytes; line += kLineBytes) __builtin_prefetch(from + line);
  }
}

// Rows [row, row + rows), at most kRowBlock from a multiple of kTogether on, times at most
// kUnitOutputs outputs.
void ProductUnit(const PackedRows& x, int64_t row, int64_t rows, const Weight& w, int64_t output,
                 int64_t outputs, float* y, int64_t y_stride, DecodeWeightsFunction decode) {
  constexpr int64_t kStep = kOutputBlock * kLanes;
  alignas(64) std::array<float, kOutputBlock * kInputBlock> decoded;
  alignas(64) UnitSums sums;
  const int64_t groups = (rows + kTogether - 1) / kTogether;
  for (int64_t first = 0; first < outputs; first += kOutputBlock) {
    std::fill_n(&sums[first / kOutputBlock * kTileSums], groups * kTogether * kRowSums, 0.0f);
  }
  for (int64_t begin = 0; begin < w.cols; begin += kInputBlock) {
    const int64_t inputs = std::min(kInputBlock, w.cols - begin);
    const int64_t vectors = (inputs + kLanes - 1) / kLanes;
    if (inputs % kLanes != 0) std::fill_n(&decoded[(vectors - 1) * kStep], kStep, 0.0f);
    for (int64_t first = 0; first < outputs; first += kOutputBlock) {
      const int64_t count = std::min(kOutputBlock, outputs - first);
      if (count < kOutputBlock) decoded.fill(0.0f);
      for (int64_t n = 0; n < count; ++n) {
        decode(w, output + first + n, begin, inputs, &decoded[n * kLanes], kStep);
      }
      const bool is_last = first + kOutputBlock >= outputs;
      FetchTile(w, is_last ? output : output + first + kOutputBlock,
                is_last ? begin + kInputBlock : begin);
      float* out = &sums[first / kOutputBlock * kTileSums];
      for (int64_t g = 0; g < groups; ++g) {
        AccumulatePacked(x.Group(row / kTogether + g, begin), {decoded.data()}, vectors,
                         out + g * kTogether * kRowSums);
      }
    }
  }
  ReduceUnit(sums, rows, outputs, y, y_stride);
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void Product(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  if (x.rows == 0) return;
  const PackedRows packed(x, pool);
  const int64_t row_blocks = (x.rows + kRowBlock - 1) / kRowBlock;
  const int64_t row_block = RoundUp((x.rows + row_blocks - 1) / row_blocks, kTogether);
  // Large units read x less often, small ones spread better over threads.
  const int64_t wanted = kUnitsPerThread * pool.threads();
  const int64_t unit_outputs = std::clamp(
      w.rows * row_blocks / wanted / kOutputBlock * kOutputBlock, kOutputBlock, kUnitOutputs);
  const int64_t output_blocks = (w.rows + unit_outputs - 1) / unit_outputs;
  const DecodeWeightsFunction decode = WeightDecoder();
  const int64_t unit_cost = row_block * unit_outputs * w.cols;
  pool.ParallelFor(row_blocks * output_blocks, pool.GrainFor(unit_cost),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t unit = begin; unit < end; ++unit) {
                       const int64_t row = unit % row_blocks * row_block;
                       const int64_t output = unit / row_blocks * unit_outputs;
                       ProductUnit(packed, row, std::min(row_block, x.rows - row), w, output,
                                   std::min(unit_outputs, w.rows - output),
                                   y.data + row * y.stride + output, y.stride, decode);
                     }
                   });
}

// Rows of x times all outputs where they are, nothing packed or decoded: what is multiplied once
// is not worth a copy.
void DotTileImpl(const DotTileArguments& a) {
  alignas(64) UnitSums sums;
  for (int64_t row = 0; row < a.rows; row += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, a.rows - row);
    for (int64_t output = 0; output < a.outputs; output += kUnitOutputs) {
      const int64_t outputs = std::min(kUnitOutputs, a.outputs - output);
      for (int64_t first = 0; first < outputs; first += kOutputBlock) {
        const Tile tile = {{a.w + (output + first) * a.w_stride, a.w_stride},
                           std::min(kOutputBlock, outputs - first),
                           a.cols};
        float* out = &sums[first / kOutputBlock * kTileSums];
        std::fill_n(out, rows * kRowSums, 0.0f);
        const auto lines = [&](int64_t r) HWY_ATTR {
          return Lines{a.x + (row + r) * a.x_stride, a.x_stride};
        };
        int64_t r = 0;
        for (; r + 3 <= rows; r += 3) AccumulateRows<3>(lines(r), tile, out + r * kRowSums);
        if (r + 2 == rows) AccumulateRows<2>(lines(r), tile, out + r * kRowSums);
        if (r + 1 == rows) AccumulateRows<1>(lines(r), tile, out + r * kRowSums);
      }
      ReduceUnit(sums, rows, outputs, a.y + row * a.y_stride + output, a.y_stride);
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
  if (w.format == WeightFormat::kFp4Group32) {
    Fp4Product(x, w, y, pool);
  } else if (x.rows <= FewRowsMax(w)) {
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
