// Products of FP4 weights with many rows of Q8 activations: the sums of fp4_products.cc, of weights
// that are unpacked once for all rows. Every 32-bit lane of a vector belongs to one output and
// holds two of its inputs, so that no lanes have to be added up, and a row of x is one value in all
// lanes.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp4_blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fixed_point-inl.h"
#include "kernels/integer_dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

constexpr int64_t kGroup = reference::kScaleGroup;
constexpr int64_t kGroupBytes = kGroup / 2;
constexpr int64_t kPairs = kGroup / 2;  // of inputs in a group
constexpr int64_t kLanes = kWordLanes;  // outputs of a vector
constexpr int64_t kVectors = 2;         // of outputs summed together
constexpr int kRowsTogether = kVectorBlocks;
constexpr int64_t kUnitOutputs = 32;  // outputs that share a row of x in the nearest cache
constexpr int64_t kUnitVectors = kUnitOutputs / kLanes;
constexpr int64_t kRowBlock = 128;   // rows that share unpacked weights
constexpr int64_t kChunkGroups = 8;  // groups unpacked together: 16 KiB of words
constexpr int64_t kChunkBytes = kChunkGroups * kGroupBytes;
constexpr int64_t kLineBytes = 64;

// Inputs of a group in the order of the unpacked weights: of every eight, the first four beside the
// last four.
struct alignas(kVectorBytes) GroupPairs {
  std::array<int32_t, kPairs> pairs;  // two words each
};

// A chunk of a row of x.
struct alignas(kVectorBytes) FixedChunk {
  std::array<GroupPairs, kChunkGroups> groups;
  std::array<float, kChunkGroups> unit;  // the value of one
};
struct alignas(kVectorBytes) ThirdChunk {
  std::array<GroupPairs, kChunkGroups> groups;
};

// Rows of x, chunk by chunk, since rows that are used together lie together.
struct FixedRows {
  explicit FixedRows(View<const float> values)
      : x(values),
        chunk_count((values.cols + kChunkGroups * kGroup - 1) / (kChunkGroups * kGroup)),
        chunks(static_cast<size_t>(chunk_count * values.rows)),
        thirds(chunks.size()),
        third_pairs(chunks.size()),
        rows(static_cast<size_t>(values.rows)) {}
  size_t At(int64_t chunk, int64_t row) const { return static_cast<size_t>(chunk * x.rows + row); }

  View<const float> x;
  int64_t chunk_count;
  std::vector<FixedChunk> chunks;  // [chunk_count][rows]
  std::vector<ThirdChunk> thirds;
  // Of each group a bit for every pair that has thirds. They are few, and thirds has nothing else.
  std::vector<std::array<uint16_t, kChunkGroups>> third_pairs;
  std::vector<FixedRow> rows;
};

HWY_INLINE void StorePairs(const __m256i (&values)[4], GroupPairs& out) {
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const __m128i first = _mm256_castsi256_si128(values[i]);
    const __m128i last = _mm_slli_epi32(_mm256_extracti128_si256(values[i], 1), 16);
    _mm_store_si128(reinterpret_cast<__m128i*>(&out.pairs[4 * i]),
                    _mm_blend_epi16(first, last, 0xAA));
  }
}

void FixRow(FixedRows& fixed, int64_t r) {
  FixedRow& row = fixed.rows[static_cast<size_t>(r)];
  for (int64_t g = 0; g < fixed.x.cols / kGroup; ++g) {
    FixedGroup group;
    if (!FixGroup(fixed.x.Row(r) + g * kGroup, group)) {
      row.is_exact = false;
      return;
    }
    row.See(group.unit_exponent);
    const size_t at = fixed.At(g / kChunkGroups, r);
    const auto in_chunk = static_cast<size_t>(g % kChunkGroups);
    StorePairs(group.upper, fixed.chunks[at].groups[in_chunk]);
    fixed.chunks[at].unit[in_chunk] = UnitOf(group);
    if (!group.has_thirds) continue;
    StorePairs(group.third, fixed.thirds[at].groups[in_chunk]);
    uint32_t pairs = 0;
    for (size_t p = 0; p < kPairs; ++p) {
      if (fixed.thirds[at].groups[in_chunk].pairs[p] != 0) pairs |= uint32_t{1} << p;
    }
    fixed.third_pairs[at][in_chunk] = static_cast<uint16_t>(pairs);
  }
}

// ---- weights ----

// A vector of outputs of a group as words, twice the value of a weight: [pair][output].
using UnpackedGroup = std::array<int32_t, kPairs * kLanes>;

// from: of the first output; the next one is `stride` bytes on.
HWY_INLINE void UnpackGroup(const uint8_t* from, int64_t stride, UnpackedGroup& out) {
  alignas(16) static constexpr std::array<int8_t, 16> kDoubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                                  0, -1, -2, -3, -4, -6, -8, -12};
  const D16 d16;
  const auto load = [&](int64_t n) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + n * stride));
  };
  // Four vectors: eight inputs, in 32 bits, of each of the outputs.
  V8 rows[4];
#pragma GCC unroll 4
  for (int64_t n = 0; n < 4; ++n) rows[n] = EveryFourth(n, load);
  V8 eights[4];
  TransposeRows(rows, eights);
  const V16 table =
      hn::BitCast(d16, hn::LoadDup128(D8(), reinterpret_cast<const uint8_t*>(kDoubled.data())));
  const V16 nibbles = hn::Set(d16, 0x0F00);
  int32_t* to = out.data();
  const auto store = [&](V16 codes) HWY_ATTR {
    // The value into the high byte, a zero into the low one.
    const V16 bytes = hn::TableLookupBytes(table, hn::And(codes, nibbles));
    hn::Store(hn::BitCast(D32(), hn::ShiftRight<8>(bytes)), D32(), to);
    to += kLanes;
  };
#pragma GCC unroll 4
  for (const V8 eight : eights) {
    const V16 words = hn::BitCast(d16, eight);
    store(hn::ShiftLeft<8>(words));
    store(hn::ShiftLeft<4>(words));
    store(words);
    store(hn::ShiftRight<4>(words));
  }
}

// What one thread needs for a unit of outputs.
struct UnitScratch {
  explicit UnitScratch(int64_t rows)
      : unpacked(kUnitVectors * kChunkGroups), sums(static_cast<size_t>(rows * kUnitVectors * 2)) {}

  struct alignas(kVectorBytes) Lanes {
    std::array<float, kLanes> values;
  };
  struct alignas(kVectorBytes) Group {
    UnpackedGroup pairs;
  };
  std::vector<Group> unpacked;                            // [kChunkGroups][kUnitVectors]
  std::array<Lanes, kUnitVectors * kChunkGroups> scales;  // likewise
  std::vector<Lanes> sums;  // [rows][2, for even and odd groups][kUnitVectors]
};

// Unpacks groups [group, group + count) of kLanes * vectors outputs from `output` on, and fetches
// those that follow.
void UnpackChunk(const Weight& w, int64_t output, int64_t vectors, int64_t group, int64_t count,
                 ScaleRange& range, UnitScratch& scratch) {
  const int64_t groups = w.cols / kGroup;
  const int64_t stride = w.cols / 2;
  for (int64_t v = 0; v < vectors; ++v) {
    const int64_t first = output + v * kLanes;
    const uint8_t* from =
        reinterpret_cast<const uint8_t*>(w.data) + first * stride + group * kGroupBytes;
    for (int64_t n = 0; n < kLanes; ++n) {
      __builtin_prefetch(from + n * stride + kChunkBytes);
      __builtin_prefetch(from + n * stride + kChunkBytes + kLineBytes);
    }
    for (int64_t g = 0; g < count; ++g) {
      const auto at = static_cast<size_t>(g * kUnitVectors + v);
      UnpackGroup(from + g * kGroupBytes, stride, scratch.unpacked[at].pairs);
      alignas(16) std::array<uint8_t, kBlockBytes> codes{};
      for (int64_t n = 0; n < kLanes; ++n) {
        codes[static_cast<size_t>(n)] = w.scales[(first + n) * groups + group + g];
      }
      for (size_t n = kLanes; n < codes.size(); ++n) codes[n] = codes[0];
      range.See(_mm_load_si128(reinterpret_cast<const __m128i*>(codes.data())));
      hn::Store(hn::BitCast(DF(), hn::ShiftLeft<23>(LoadWidened(codes.data()))), DF(),
                scratch.scales[at].values.data());
    }
  }
}

// ---- sums ----

// The integer sums of a group without the thirds. x: of the first row; the next one has its group
// kRowWords values on. w: [kVectors].
constexpr int64_t kRowWords = sizeof(FixedChunk) / sizeof(int32_t);

template <int kRows>
HWY_INLINE void DotGroup(const int32_t* w, const int32_t* x, V32 (&dots)[kRows][kVectors]) {
  const D32 d32;
  const auto words = [](V32 v) HWY_ATTR { return hn::BitCast(D16(), v); };
#pragma GCC unroll 8
  for (int i = 0; i < kRows * kVectors; ++i) dots[i / kVectors][i % kVectors] = hn::Zero(d32);
#pragma GCC unroll 4
  for (int64_t p = 0; p < kPairs; ++p) {
    const V16 first = words(hn::Load(d32, w + p * kLanes));
    const V16 second = words(hn::Load(d32, w + (kPairs + p) * kLanes));
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const V16 input = words(hn::Set(d32, x[r * kRowWords + p]));
      dots[r][0] = AddPairs(dots[r][0], first, input);
      dots[r][1] = AddPairs(dots[r][1], second, input);
    }
  }
}

// Adds groups [0, count) of a chunk of kRows rows from `row` on to two vectors of outputs.
template <int kRows>
HWY_INLINE void AddChunk(const FixedRows& fixed, size_t at, int64_t count,
                         const UnitScratch::Group* unpacked, const UnitScratch::Lanes* scales,
                         UnitScratch::Lanes* sums) {
  static_assert(kVectors == 2);
  const D32 d32;
  const DF df;
  for (int64_t g = 0; g < count; ++g) {
    const auto group = static_cast<size_t>(g);
    const int32_t* w = unpacked[group * kUnitVectors].pairs.data();
    V32 dots[kRows][kVectors];
    DotGroup<kRows>(w, fixed.chunks[at].groups[group].pairs.data(), dots);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      V32 first = hn::ShiftLeft<kThirdBits>(dots[r][0]);
      V32 second = hn::ShiftLeft<kThirdBits>(dots[r][1]);
      for (uint32_t left = fixed.third_pairs[at + r][group]; HWY_UNLIKELY(left != 0);
           left &= left - 1) {
        const int pair = std::countr_zero(left);
        const V16 third = hn::BitCast(
            D16(),
            hn::Set(d32, fixed.thirds[at + r].groups[group].pairs[static_cast<size_t>(pair)]));
        const int32_t* weights = w + pair * kLanes;
        first = AddPairs(first, hn::BitCast(D16(), hn::Load(d32, weights)), third);
        second =
            AddPairs(second, hn::BitCast(D16(), hn::Load(d32, weights + kPairs * kLanes)), third);
      }
      const VF unit = hn::Set(df, fixed.chunks[at + r].unit[group]);
      UnitScratch::Lanes* sum = sums + (r * 2 + group % 2) * kUnitVectors;
      const UnitScratch::Lanes* scale = scales + group * kUnitVectors;
      const auto add = [&](V32 dot, size_t v) HWY_ATTR {
        const VF factor = hn::Mul(hn::Load(df, scale[v].values.data()), unit);
        const VF before = hn::Load(df, sum[v].values.data());
        hn::Store(hn::MulAdd(hn::ConvertTo(df, dot), factor, before), df, sum[v].values.data());
      };
      add(first, 0);
      add(second, 1);
    }
  }
}

template <int kRows>
HWY_INLINE void AddChunkOfRows(const FixedRows& fixed, int64_t chunk, int64_t row, int64_t count,
                               int64_t vectors, UnitScratch& scratch) {
  for (int64_t v = 0; v < vectors; v += kVectors) {
    AddChunk<kRows>(fixed, fixed.At(chunk, row), count, scratch.unpacked.data() + v,
                    scratch.scales.data() + v, scratch.sums.data() + row * 2 * kUnitVectors + v);
  }
}

// Outputs [output, output + outputs), at most kUnitOutputs. Rows that are not exact have something
// there at first.
void Unit(const FixedRows& fixed, const Weight& w, int64_t output, int64_t outputs,
          UnitScratch& scratch, View<float> y) {
  constexpr int64_t kTogether = kVectors * kLanes;
  const int64_t summed = outputs / kTogether * kTogether;
  const int64_t groups = w.cols / kGroup;
  ScaleRange range;
  for (UnitScratch::Lanes& sum : scratch.sums) sum.values.fill(0.0f);
  for (int64_t chunk = 0; chunk < fixed.chunk_count; ++chunk) {
    const int64_t group = chunk * kChunkGroups;
    const int64_t count = std::min(kChunkGroups, groups - group);
    UnpackChunk(w, output, summed / kLanes, group, count, range, scratch);
    int64_t r = 0;
    for (; r + kRowsTogether <= fixed.x.rows; r += kRowsTogether) {
      AddChunkOfRows<kRowsTogether>(fixed, chunk, r, count, summed / kLanes, scratch);
    }
    for (; r + 2 <= fixed.x.rows; r += 2) {
      AddChunkOfRows<2>(fixed, chunk, r, count, summed / kLanes, scratch);
    }
    if (r < fixed.x.rows) AddChunkOfRows<1>(fixed, chunk, r, count, summed / kLanes, scratch);
  }
  for (int64_t r = 0; r < fixed.x.rows; ++r) {
    const FixedRow& row = fixed.rows[static_cast<size_t>(r)];
    const int64_t done = row.is_exact && AreNormal(row, range) ? summed : 0;
    const UnitScratch::Lanes* sums = &scratch.sums[static_cast<size_t>(r * 2 * kUnitVectors)];
    for (int64_t n = 0; n < done; ++n) {
      const auto v = static_cast<size_t>(n / kLanes);
      const auto lane = static_cast<size_t>(n % kLanes);
      y.Row(r)[output + n] = sums[v].values[lane] + sums[kUnitVectors + v].values[lane];
    }
    Fp4PlainOutputs(fixed.x.Row(r), w, output + done, outputs - done, y.Row(r));
  }
}

void BlocksImpl(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  const int64_t units = (w.rows + kUnitOutputs - 1) / kUnitOutputs;
  for (int64_t first = 0; first < x.rows; first += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, x.rows - first);
    FixedRows fixed(x.Rows(first, rows));
    pool.ParallelFor(rows, pool.GrainFor(x.cols * kLanes), [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) FixRow(fixed, r);
    });
    const View<float> out = y.Rows(first, rows);
    pool.ParallelFor(
        units, pool.GrainFor(rows * kUnitOutputs * w.cols), [&](int64_t begin, int64_t end, int) {
          UnitScratch scratch(rows);
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t output = unit * kUnitOutputs;
            Unit(fixed, w, output, std::min(kUnitOutputs, w.rows - output), scratch, out);
          }
        });
  }
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(BlocksImpl);

void Fp4Blocks(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(BlocksImpl)(x, w, y, pool);
}

}  // namespace minke::simd
#endif
