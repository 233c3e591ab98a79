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
constexpr int64_t kLanes = 8;           // outputs of a vector
constexpr int64_t kVectors = 2;         // of outputs summed together
constexpr int64_t kUnitOutputs = 32;    // outputs that share a row of x in the nearest cache
constexpr int64_t kUnitVectors = kUnitOutputs / kLanes;
constexpr int64_t kRowBlock = 128;   // rows that share unpacked weights
constexpr int64_t kChunkGroups = 8;  // groups unpacked together: 16 KiB of words
constexpr int64_t kChunkBytes = kChunkGroups * kGroupBytes;
constexpr int64_t kLineBytes = 64;

// Inputs of a group in the order of the unpacked weights: of every eight, the first four beside the
// last four.
struct alignas(32) GroupPairs {
  std::array<int32_t, kPairs> pairs;  // two words each
};

// A chunk of a row of x.
struct alignas(32) FixedChunk {
  std::array<GroupPairs, kChunkGroups> groups;
  std::array<float, kChunkGroups> unit;  // the value of one
};
struct alignas(32) ThirdChunk {
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

// Eight outputs of a group as words, twice the value of a weight: [pair][output].
using UnpackedGroup = std::array<int32_t, kPairs * kLanes>;

// from: of the first output; the next one is `stride` bytes on.
HWY_INLINE void UnpackGroup(const uint8_t* from, int64_t stride, UnpackedGroup& out) {
  const auto load = [&](int64_t n) HWY_ATTR {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + n * stride));
  };
  // Four vectors: eight inputs, in 32 bits, of each of the eight outputs.
  __m256i rows[4];
#pragma GCC unroll 4
  for (int64_t n = 0; n < 4; ++n) rows[n] = _mm256_set_m128i(load(n + 4), load(n));
  __m256i eights[4];
  TransposeEight(rows, eights);
  const __m256i table = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
  const __m256i nibbles = _mm256_set1_epi16(0x0F00);
  int32_t* to = out.data();
  const auto store = [&](__m256i codes) HWY_ATTR {
    // The value into the high byte, a zero into the low one.
    const __m256i bytes = _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibbles));
    StoreBytes(_mm256_srai_epi16(bytes, 8), to);
    to += kLanes;
  };
#pragma GCC unroll 4
  for (const __m256i eight : eights) {
    store(_mm256_slli_epi16(eight, 8));
    store(_mm256_slli_epi16(eight, 4));
    store(eight);
    store(_mm256_srli_epi16(eight, 4));
  }
}

// What one thread needs for a unit of outputs.
struct UnitScratch {
  explicit UnitScratch(int64_t rows)
      : unpacked(kUnitVectors * kChunkGroups), sums(static_cast<size_t>(rows * kUnitVectors * 2)) {}

  struct alignas(32) Eight {
    std::array<float, kLanes> values;
  };
  std::vector<UnpackedGroup> unpacked;                    // [kChunkGroups][kUnitVectors]
  std::array<Eight, kUnitVectors * kChunkGroups> scales;  // likewise
  std::vector<Eight> sums;  // [rows][2, for even and odd groups][kUnitVectors]
};

// Unpacks groups [group, group + count) of 8 * vectors outputs from `output` on, and fetches those
// that follow.
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
      UnpackGroup(from + g * kGroupBytes, stride, scratch.unpacked[at]);
      alignas(16) std::array<uint8_t, 16> codes;
      for (int64_t n = 0; n < kLanes; ++n) {
        codes[static_cast<size_t>(n)] = w.scales[(first + n) * groups + group + g];
      }
      const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes.data()));
      range.See(_mm_unpacklo_epi64(eight, eight));
      StoreBytes(_mm256_slli_epi32(_mm256_cvtepu8_epi32(eight), 23),
                 scratch.scales[at].values.data());
    }
  }
}

// ---- sums ----

// The integer sums of a group without the thirds. x: of the first row; the next one has its group
// kRowWords values on. w: [kVectors].
constexpr int64_t kRowWords = sizeof(FixedChunk) / sizeof(int32_t);

template <int kRows>
HWY_INLINE void DotGroup(const int32_t* w, const int32_t* x, __m256i (&dots)[kRows][kVectors]) {
#pragma GCC unroll 4
  for (int i = 0; i < kRows * kVectors; ++i)
    dots[i / kVectors][i % kVectors] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int64_t p = 0; p < kPairs; ++p) {
    const __m256i first = LoadBytes(w + p * kLanes);
    const __m256i second = LoadBytes(w + (kPairs + p) * kLanes);
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      const __m256i input = _mm256_set1_epi32(x[r * kRowWords + p]);
      dots[r][0] = _mm256_add_epi32(dots[r][0], _mm256_madd_epi16(first, input));
      dots[r][1] = _mm256_add_epi32(dots[r][1], _mm256_madd_epi16(second, input));
    }
  }
}

// Adds groups [0, count) of a chunk of kRows rows from `row` on to two vectors of outputs.
template <int kRows>
HWY_INLINE void AddChunk(const FixedRows& fixed, size_t at, int64_t count,
                         const UnpackedGroup* unpacked, const UnitScratch::Eight* scales,
                         UnitScratch::Eight* sums) {
  static_assert(kVectors == 2);
  for (int64_t g = 0; g < count; ++g) {
    const auto group = static_cast<size_t>(g);
    const int32_t* w = unpacked[group * kUnitVectors].data();
    __m256i dots[kRows][kVectors];
    DotGroup<kRows>(w, fixed.chunks[at].groups[group].pairs.data(), dots);
#pragma GCC unroll 2
    for (size_t r = 0; r < kRows; ++r) {
      __m256i first = _mm256_slli_epi32(dots[r][0], kThirdBits);
      __m256i second = _mm256_slli_epi32(dots[r][1], kThirdBits);
      for (uint32_t left = fixed.third_pairs[at + r][group]; HWY_UNLIKELY(left != 0);
           left &= left - 1) {
        const int pair = std::countr_zero(left);
        const __m256i third =
            _mm256_set1_epi32(fixed.thirds[at + r].groups[group].pairs[static_cast<size_t>(pair)]);
        const int32_t* weights = w + pair * kLanes;
        first = _mm256_add_epi32(first, _mm256_madd_epi16(LoadBytes(weights), third));
        second = _mm256_add_epi32(second,
                                  _mm256_madd_epi16(LoadBytes(weights + kPairs * kLanes), third));
      }
      const __m256 unit = _mm256_set1_ps(fixed.chunks[at + r].unit[group]);
      UnitScratch::Eight* sum = sums + (r * 2 + group % 2) * kUnitVectors;
      const UnitScratch::Eight* scale = scales + group * kUnitVectors;
      const auto add = [&](__m256i dot, size_t v) HWY_ATTR {
        const __m256 factor = _mm256_mul_ps(_mm256_load_ps(scale[v].values.data()), unit);
        const __m256 before = _mm256_load_ps(sum[v].values.data());
        _mm256_store_ps(sum[v].values.data(),
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, before));
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
  for (UnitScratch::Eight& sum : scratch.sums) sum.values.fill(0.0f);
  for (int64_t chunk = 0; chunk < fixed.chunk_count; ++chunk) {
    const int64_t group = chunk * kChunkGroups;
    const int64_t count = std::min(kChunkGroups, groups - group);
    UnpackChunk(w, output, summed / kLanes, group, count, range, scratch);
    int64_t r = 0;
    for (; r + 2 <= fixed.x.rows; r += 2) {
      AddChunkOfRows<2>(fixed, chunk, r, count, summed / kLanes, scratch);
    }
    if (r < fixed.x.rows) AddChunkOfRows<1>(fixed, chunk, r, count, summed / kLanes, scratch);
  }
  for (int64_t r = 0; r < fixed.x.rows; ++r) {
    const FixedRow& row = fixed.rows[static_cast<size_t>(r)];
    const int64_t done = row.is_exact && AreNormal(row, range) ? summed : 0;
    const UnitScratch::Eight* sums = &scratch.sums[static_cast<size_t>(r * 2 * kUnitVectors)];
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
