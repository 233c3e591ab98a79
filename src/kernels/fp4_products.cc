// Products of FP4 weights with Q8 activations, straight from the stored bytes (architecture.md 0.3,
// 7.2). Both are small integers under powers of two, so the 32 products of a group are summed in
// integers, without an order and without an error; kernels.h says how the groups are added.
//
// E2M1 times two is an integer from -12 to 12: plus 12 it is a byte that one shuffle looks up, and
// the multiply-add of unsigned by signed bytes takes it as it is. An activation of a group is an
// integer of 16 bits, two signed bytes, unless the group also has a value under 2^-11 of its
// largest one; then the three bits that are missing take a third byte.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp4_products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/integer_dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

constexpr int64_t kGroup = reference::kScaleGroup;
constexpr int64_t kStep = 2 * kGroup;      // inputs whose weights fill a vector
constexpr int64_t kStepBytes = kStep / 2;  // of one output
constexpr int64_t kOutputs = 4;            // outputs summed together: a step of them has 8 groups
constexpr int64_t kBlockOutputs = 32;      // outputs for which a row of x stays in the cache
constexpr int64_t kRowBlock = 64;          // rows for which unpacked weights stay in the cache
constexpr int64_t kChunkSteps = 8;         // steps unpacked together
constexpr int64_t kFewRows = 8;            // rows that are cheaper without unpacking ahead
constexpr int64_t kPrefetchBytes = 1024;
constexpr int kLimbBits = 8;
constexpr int kThirdBits = 3;
constexpr int kBias = 12;              // of twice an E2M1 value, as a byte
constexpr int kFixedBits = 14;         // fraction bits of the two bytes under the exponent
constexpr float kFixedMax = 32639.0f;  // 127 * 256 + 127
// Units within which no product of powers of two leaves the normal floats by itself.
constexpr int kUnitExponentMin = -100;
constexpr int kUnitExponentMax = 90;

// A row of x in fixed point. For each step: the high bytes of the even and of the odd inputs, the
// low bytes likewise; the third bytes; for each of 8 sums (4 outputs of the first group, 4 of the
// second) what the bias adds and the value of one.
struct alignas(32) FixedStep {
  std::array<int8_t, 4 * kGroup> limbs;
  std::array<int8_t, 2 * kGroup> thirds;
  std::array<int32_t, 2 * kOutputs> bias;
  std::array<float, 2 * kOutputs> unit;
  bool has_thirds;
};

struct FixedRow {
  const FixedStep* steps = nullptr;
  bool is_exact = true;  // the integers are the values
  int unit_min = kUnitExponentMax;
  int unit_max = kUnitExponentMin;
};

// ---- activations to fixed point ----

// One group into half `half` of a step. Returns the exponent of its unit, or none where the values
// are no integers of three limbs.
HWY_INLINE bool FixGroup(const float* x, int64_t half, FixedStep& step, int& unit_exponent) {
  __m256 values[4];
  LoadGroup(x, values);
  const int32_t largest = LargestMagnitude(values);
  const int exponent = largest == 0 ? 0 : (largest >> 23) - 127;
  unit_exponent = exponent - kFixedBits - kThirdBits;
  if (unit_exponent < kUnitExponentMin || unit_exponent > kUnitExponentMax) return false;
  const auto factor = std::bit_cast<float>((127 - unit_exponent) << 23);
  __m256i fixed[4];
  if (!ToIntegers(values, factor, fixed)) return false;
  if (std::bit_cast<float>(largest) * factor > kFixedMax * (1 << kThirdBits)) return false;
  __m256i high[4];
  __m256i low[4];
  __m256i third[4];
  __m256i thirds = _mm256_setzero_si256();
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i upper = _mm256_srai_epi32(fixed[i], kThirdBits);
    third[i] = _mm256_sub_epi32(fixed[i], _mm256_slli_epi32(upper, kThirdBits));
    thirds = _mm256_or_si256(thirds, third[i]);
    high[i] = _mm256_srai_epi32(_mm256_add_epi32(upper, _mm256_set1_epi32(1 << (kLimbBits - 1))),
                                kLimbBits);
    low[i] = _mm256_sub_epi32(upper, _mm256_slli_epi32(high[i], kLimbBits));
    sum = _mm256_add_epi32(sum, fixed[i]);
  }
  const auto at = static_cast<size_t>(half * kGroup / 2);
  StoreSplit(high, &step.limbs[at], &step.limbs[kGroup + at]);
  StoreSplit(low, &step.limbs[2 * kGroup + at], &step.limbs[3 * kGroup + at]);
  StoreSplit(third, &step.thirds[at], &step.thirds[kGroup + at]);
  step.has_thirds |= _mm256_testz_si256(thirds, thirds) == 0;
  alignas(32) std::array<int32_t, 8> lanes;
  StoreBytes(sum, lanes.data());
  int32_t total = 0;
  for (const int32_t lane : lanes) total += lane;
  const auto first = static_cast<size_t>(half * kOutputs);
  std::fill_n(step.bias.begin() + first, kOutputs, -kBias * total);
  // The integer weights are twice the values.
  std::fill_n(step.unit.begin() + first, kOutputs,
              std::bit_cast<float>((127 + unit_exponent - 1) << 23));
  return true;
}

// x: `cols` values, a multiple of 32. steps: [ceil(cols / 64)].
FixedRow FixRow(const float* x, int64_t cols, FixedStep* steps) {
  FixedRow row;
  row.steps = steps;
  const int64_t groups = cols / kGroup;
  for (int64_t g = 0; g < groups; ++g) {
    FixedStep& step = steps[g / 2];
    if (g % 2 == 0) step.has_thirds = false;
    int exponent = 0;
    if (!FixGroup(x + g * kGroup, g % 2, step, exponent)) {
      row.is_exact = false;
      return row;
    }
    row.unit_min = std::min(row.unit_min, exponent - 1);
    row.unit_max = std::max(row.unit_max, exponent - 1);
  }
  if (groups % 2 != 0) {  // a second group of zeros
    static constexpr std::array<float, kGroup> kZeros = {};
    int exponent = 0;
    FixGroup(kZeros.data(), 1, steps[groups / 2], exponent);
  }
  return row;
}

// ---- weights ----

// E2M1 codes as bytes: twice the value, plus kBias.
HWY_INLINE Unpacked UnpackWeights(__m256i pairs) {
  return Unpack(pairs, _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

// Scale codes of four outputs in the order of their sums: for each group the four outputs.
struct ScaleRange {
  int low = 255;
  int high = 0;
};
ScaleRange InterleaveScales(const uint8_t* scales, int64_t groups, uint8_t* out) {
  constexpr int64_t kAtOnce = 16;
  __m128i low = _mm_set1_epi8(-1);
  __m128i high = _mm_setzero_si128();
  int64_t g = 0;
  for (; g + kAtOnce <= groups; g += kAtOnce) {
    __m128i rows[kOutputs];
#pragma GCC unroll 4
    for (int64_t n = 0; n < kOutputs; ++n) {
      const uint8_t* from = scales + n * groups + g;
      const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      low = _mm_min_epu8(low, row);
      high = _mm_max_epu8(high, row);
      rows[n] = row;
    }
    const auto store = [&](__m128i a, __m128i b, int64_t first) {
      auto* to = reinterpret_cast<__m128i*>(out + (g + first) * kOutputs);
      _mm_storeu_si128(to, _mm_unpacklo_epi16(a, b));
      _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(a, b));
    };
    store(_mm_unpacklo_epi8(rows[0], rows[1]), _mm_unpacklo_epi8(rows[2], rows[3]), 0);
    store(_mm_unpackhi_epi8(rows[0], rows[1]), _mm_unpackhi_epi8(rows[2], rows[3]), kAtOnce / 2);
  }
  alignas(16) std::array<uint8_t, kAtOnce> lows;
  alignas(16) std::array<uint8_t, kAtOnce> highs;
  _mm_store_si128(reinterpret_cast<__m128i*>(lows.data()), low);
  _mm_store_si128(reinterpret_cast<__m128i*>(highs.data()), high);
  ScaleRange range{*std::min_element(lows.begin(), lows.end()),
                   *std::max_element(highs.begin(), highs.end())};
  for (; g < groups; ++g) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      const uint8_t code = scales[n * groups + g];
      out[g * kOutputs + n] = code;
      range.low = std::min<int>(range.low, code);
      range.high = std::max<int>(range.high, code);
    }
  }
  if (groups % 2 != 0) std::fill_n(out + groups * kOutputs, kOutputs, uint8_t{127});
  return range;
}

// Whether unit * scale is a normal float for all of both; NaN and the subnormal scale are not.
bool AreNormal(const FixedRow& row, const ScaleRange& range) {
  return range.low > 0 && range.high < 255 && row.unit_min + range.low - 127 >= -126 &&
         row.unit_max + range.high - 127 <= 127;
}

// ---- sums ----

HWY_INLINE __m256i Dot(const Unpacked& w, __m256i even, __m256i odd, int16_t weight) {
  return _mm256_madd_epi16(DotPairs(w, even, odd), _mm256_set1_epi16(weight));
}

HWY_INLINE __m256i DotLimbs(const Unpacked& w, const FixedStep& x) {
  return _mm256_add_epi32(
      Dot(w, LoadBytes(&x.limbs[0]), LoadBytes(&x.limbs[kGroup]), 1 << kLimbBits),
      Dot(w, LoadBytes(&x.limbs[2 * kGroup]), LoadBytes(&x.limbs[3 * kGroup]), 1));
}

HWY_INLINE __m256i DotThirds(const Unpacked& w, const FixedStep& x) {
  return Dot(w, LoadBytes(&x.thirds[0]), LoadBytes(&x.thirds[kGroup]), 1);
}

// sums += one step of four outputs.
HWY_INLINE __m256 AddStep(const std::array<Unpacked, kOutputs>& w, const FixedStep& x,
                          const uint8_t* scales, __m256 sums) {
  __m256i dots =
      SumLanes(DotLimbs(w[0], x), DotLimbs(w[1], x), DotLimbs(w[2], x), DotLimbs(w[3], x));
  dots = _mm256_slli_epi32(dots, kThirdBits);
  if (HWY_UNLIKELY(x.has_thirds)) {
    dots = _mm256_add_epi32(dots, SumLanes(DotThirds(w[0], x), DotThirds(w[1], x),
                                           DotThirds(w[2], x), DotThirds(w[3], x)));
  }
  dots = _mm256_add_epi32(dots, LoadBytes(x.bias.data()));
  int64_t codes = 0;
  std::memcpy(&codes, scales, sizeof codes);
  const __m256 scale =
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(codes)), 23));
  const __m256 factor = _mm256_mul_ps(_mm256_load_ps(x.unit.data()), scale);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), factor, sums);
}

HWY_INLINE void StoreSums(__m256 sums, float* y) {
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}

// Packed weights of a step that may be the last half.
HWY_INLINE __m256i LoadStep(const uint8_t* row, int64_t step, int64_t groups) {
  const uint8_t* from = row + step * kStepBytes;
  if (HWY_LIKELY(2 * step + 1 < groups)) return LoadBytes(from);
  return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Four outputs of a few rows, weights unpacked on the way. x: the steps of each row.
template <size_t kRows>
void FewRows(const std::array<const FixedStep*, kRows>& x, const uint8_t* packed, int64_t groups,
             const uint8_t* scales, const std::array<float*, kRows>& y) {
  const int64_t stride = groups * kGroup / 2;
  __m256 sums[kRows];
#pragma GCC unroll 4
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  for (int64_t step = 0; 2 * step < groups; ++step) {
    std::array<Unpacked, kOutputs> w;
    // In the same row, or near the beginning of a row of the next four.
    const int64_t ahead = step * kStepBytes + kPrefetchBytes < stride
                              ? kPrefetchBytes
                              : kPrefetchBytes + (kOutputs - 1) * stride;
#pragma GCC unroll 4
    for (int64_t n = 0; n < kOutputs; ++n) {
      const uint8_t* row = packed + n * stride;
      if (step % 2 == 0) __builtin_prefetch(row + step * kStepBytes + ahead);
      w[static_cast<size_t>(n)] = UnpackWeights(LoadStep(row, step, groups));
    }
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) {
      sums[r] = AddStep(w, x[r][step], scales + step * 2 * kOutputs, sums[r]);
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) StoreSums(sums[r], y[r]);
}

// Outputs that the integers cannot hold, by the definition.
void PlainOutputs(const float* x, const Weight& w, int64_t output, int64_t outputs, float* y) {
  std::vector<float> codes(static_cast<size_t>(w.cols));
  for (int64_t n = output; n < output + outputs; ++n) {
    reference::DecodeFp4Codes(w, n, codes.data());
    y[n] = reference::Fp4Dot(x, codes.data(), w.scales + n * (w.cols / kGroup), w.cols);
  }
}

// Rows of x that share the unpacked weights.
struct RowsInFixedPoint {
  View<const float> x;
  std::vector<FixedStep> steps;
  std::vector<FixedRow> rows;
};

RowsInFixedPoint FixRows(View<const float> x) {
  RowsInFixedPoint fixed;
  const int64_t steps = (x.cols + kStep - 1) / kStep;
  fixed.x = x;
  fixed.steps.resize(static_cast<size_t>(steps * x.rows));
  for (int64_t r = 0; r < x.rows; ++r) {
    fixed.rows.push_back(FixRow(x.Row(r), x.cols, fixed.steps.data() + r * steps));
  }
  return fixed;
}

struct alignas(32) Sums {
  std::array<float, 2 * kOutputs> lanes;
};

// y: [rows, kOutputs]. Rows that are not exact have something there.
void FewRowsOfBlock(const RowsInFixedPoint& fixed, const uint8_t* packed, int64_t groups,
                    const uint8_t* scales, View<float> y) {
  const auto steps = [&](int64_t r) { return fixed.rows[static_cast<size_t>(r)].steps; };
  int64_t r = 0;
  for (; r + 2 <= fixed.x.rows; r += 2) {
    FewRows<2>({steps(r), steps(r + 1)}, packed, groups, scales, {y.Row(r), y.Row(r + 1)});
  }
  if (r < fixed.x.rows) FewRows<1>({steps(r)}, packed, groups, scales, {y.Row(r)});
}

// What one thread needs for a block of outputs.
struct BlockScratch {
  std::vector<uint8_t> scales;     // [blocks of kOutputs, groups rounded up to even, kOutputs]
  std::vector<Unpacked> unpacked;  // [blocks of kOutputs][kChunkSteps][kOutputs]
  std::vector<Sums> sums;          // [rows][blocks of kOutputs]
};

// Outputs [output, output + 4 * blocks) of all rows.
void BlockOfRows(const RowsInFixedPoint& fixed, const Weight& w, int64_t output, int64_t blocks,
                 BlockScratch& scratch, View<float> y) {
  const int64_t groups = w.cols / kGroup;
  const int64_t steps = (groups + 1) / 2;
  const int64_t rows = fixed.x.rows;
  const auto* packed = reinterpret_cast<const uint8_t*>(w.data) + output * w.cols / 2;
  scratch.sums.assign(static_cast<size_t>(rows * blocks), Sums{});
  for (int64_t chunk = 0; chunk < steps; chunk += kChunkSteps) {
    const int64_t count = std::min(kChunkSteps, steps - chunk);
    for (int64_t n = 0; n < blocks * kOutputs; ++n) {
      Unpacked* out =
          &scratch
               .unpacked[static_cast<size_t>(n / kOutputs * kChunkSteps * kOutputs + n % kOutputs)];
      for (int64_t s = 0; s < count; ++s) {
        out[s * kOutputs] = UnpackWeights(LoadStep(packed + n * w.cols / 2, chunk + s, groups));
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (!fixed.rows[static_cast<size_t>(r)].is_exact) continue;
      const FixedStep* x = fixed.rows[static_cast<size_t>(r)].steps + chunk;
      for (int64_t b = 0; b < blocks; ++b) {
        float* sums = scratch.sums[static_cast<size_t>(r * blocks + b)].lanes.data();
        const Unpacked* in = &scratch.unpacked[static_cast<size_t>(b * kChunkSteps * kOutputs)];
        const uint8_t* scales = scratch.scales.data() + (b * steps + chunk) * 8;
        __m256 sum = _mm256_load_ps(sums);
        for (int64_t s = 0; s < count; ++s) {
          sum = AddStep({in[s * 4], in[s * 4 + 1], in[s * 4 + 2], in[s * 4 + 3]}, x[s],
                        scales + s * 2 * kOutputs, sum);
        }
        _mm256_store_ps(sums, sum);
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t b = 0; b < blocks; ++b) {
      StoreSums(_mm256_load_ps(scratch.sums[static_cast<size_t>(r * blocks + b)].lanes.data()),
                y.Row(r) + output + b * kOutputs);
    }
  }
}

void Outputs(const RowsInFixedPoint& fixed, const Weight& w, int64_t output, int64_t outputs,
             BlockScratch& scratch, View<float> y) {
  const int64_t groups = w.cols / kGroup;
  const int64_t steps = (groups + 1) / 2;
  const int64_t blocks = outputs / kOutputs;
  const auto* packed = reinterpret_cast<const uint8_t*>(w.data);
  std::array<ScaleRange, kBlockOutputs / kOutputs> ranges;
  for (int64_t b = 0; b < blocks; ++b) {
    ranges[static_cast<size_t>(b)] = InterleaveScales(
        w.scales + (output + b * kOutputs) * groups, groups, scratch.scales.data() + b * steps * 8);
  }
  if (fixed.x.rows <= kFewRows) {
    for (int64_t b = 0; b < blocks; ++b) {
      FewRowsOfBlock(fixed, packed + (output + b * kOutputs) * w.cols / 2, groups,
                     scratch.scales.data() + b * steps * 8,
                     y.Cols(output + b * kOutputs, kOutputs));
    }
  } else {
    BlockOfRows(fixed, w, output, blocks, scratch, y);
  }
  for (int64_t r = 0; r < fixed.x.rows; ++r) {
    const FixedRow& row = fixed.rows[static_cast<size_t>(r)];
    for (int64_t b = 0; b < blocks; ++b) {
      if (row.is_exact && AreNormal(row, ranges[static_cast<size_t>(b)])) continue;
      PlainOutputs(fixed.x.Row(r), w, output + b * kOutputs, kOutputs, y.Row(r));
    }
    PlainOutputs(fixed.x.Row(r), w, output + blocks * kOutputs, outputs % kOutputs, y.Row(r));
  }
}

void Fp4ProductImpl(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  const int64_t steps = (w.cols + kStep - 1) / kStep;
  const int64_t units = (w.rows + kBlockOutputs - 1) / kBlockOutputs;
  for (int64_t first = 0; first < x.rows; first += kRowBlock) {
    const int64_t rows = std::min(kRowBlock, x.rows - first);
    const RowsInFixedPoint fixed = FixRows(x.Rows(first, rows));
    const View<float> out = y.Rows(first, rows);
    pool.ParallelFor(
        units, pool.GrainFor(rows * kBlockOutputs * w.cols), [&](int64_t begin, int64_t end, int) {
          BlockScratch scratch;
          scratch.scales.resize(static_cast<size_t>(kBlockOutputs / kOutputs * steps * 8));
          if (rows > kFewRows) {
            scratch.unpacked.resize(kBlockOutputs * kChunkSteps);
          }
          for (int64_t unit = begin; unit < end; ++unit) {
            const int64_t output = unit * kBlockOutputs;
            Outputs(fixed, w, output, std::min(kBlockOutputs, w.rows - output), scratch, out);
          }
        });
  }
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(Fp4ProductImpl);

void Fp4Product(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  HWY_DYNAMIC_DISPATCH(Fp4ProductImpl)(x, w, y, pool);
}

}  // namespace minke::simd
#endif
