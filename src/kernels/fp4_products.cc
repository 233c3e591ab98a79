// Products of FP4 weights with Q8 activations, straight from the stored bytes (architecture.md 0.3,
// 7.2). Both are small integers under powers of two, so the 32 products of a group are summed in
// integers, without an order and without an error; kernels.h says how the groups are added.
//
// E2M1 times two is an integer from -12 to 12: plus 12 it is a byte that one shuffle looks up, and
// the multiply-add of unsigned by signed bytes takes it as it is. An activation of a group is an
// integer of 16 bits, two signed bytes, unless the group also has a value under 2^-11 of its
// largest one; then the three bits that are missing take a third byte. More rows than kFewRows
// share weights that are unpacked ahead: fp4_blocks.cc.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fp4_products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fixed_point-inl.h"
#include "kernels/integer_dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

constexpr int64_t kGroup = reference::kScaleGroup;
constexpr int64_t kStep = 2 * kGroup;      // inputs whose weights fill a vector
constexpr int64_t kStepBytes = kStep / 2;  // of one output
constexpr int64_t kOutputs = 4;            // outputs summed together: a step of them has 8 groups
constexpr int64_t kStepSums = 2 * kOutputs;
constexpr int64_t kUnitOutputs = 32;  // outputs a thread takes at once
constexpr int64_t kScaleSteps = 64;   // steps whose scales are put in order together
constexpr int64_t kLineBytes = 64;
constexpr int kLimbBits = 8;
constexpr int kBias = 12;  // of twice an E2M1 value, as a byte

// A step of a row of x in fixed point: the high bytes of the even and of the odd inputs, the low
// bytes likewise, for each of 8 sums (4 outputs of the first group, 4 of the second) the value of
// one, and of each group what a bias of the weights multiplies.
struct alignas(32) FixedStep {
  std::array<int8_t, 4 * kGroup> limbs;
  std::array<float, kStepSums> unit;
  std::array<int32_t, 2> totals;
  bool has_thirds;
};
struct alignas(32) ThirdStep {
  std::array<int8_t, 2 * kGroup> limbs;  // the third bytes of the even and of the odd inputs
};

struct FixedRows {
  explicit FixedRows(View<const float> values)
      : x(values),
        steps_of_row((values.cols + kStep - 1) / kStep),
        steps(static_cast<size_t>(steps_of_row * values.rows)),
        thirds(steps.size()),
        rows(static_cast<size_t>(values.rows)) {}

  View<const float> x;
  int64_t steps_of_row;
  std::vector<FixedStep> steps;  // [rows][steps_of_row]
  std::vector<ThirdStep> thirds;
  std::vector<FixedRow> rows;
};

// ---- activations to fixed point ----

HWY_INLINE void StoreGroup(const FixedGroup& group, int64_t half, FixedStep& step,
                           ThirdStep& thirds) {
  __m256i high[4];
  __m256i low[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m256i rounded =
        _mm256_add_epi32(group.upper[i], _mm256_set1_epi32(1 << (kLimbBits - 1)));
    high[i] = _mm256_srai_epi32(rounded, kLimbBits);
    low[i] = _mm256_sub_epi32(group.upper[i], _mm256_slli_epi32(high[i], kLimbBits));
  }
  const auto at = static_cast<size_t>(half * kGroup / 2);
  StoreSplit(high, &step.limbs[at], &step.limbs[kGroup + at]);
  StoreSplit(low, &step.limbs[2 * kGroup + at], &step.limbs[3 * kGroup + at]);
  StoreSplit(group.third, &thirds.limbs[at], &thirds.limbs[kGroup + at]);
  step.has_thirds |= group.has_thirds;
  __m128i total =
      _mm_add_epi32(_mm256_castsi256_si128(group.sum), _mm256_extracti128_si256(group.sum, 1));
  total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4E));
  total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0xB1));
  step.totals[static_cast<size_t>(half)] = _mm_cvtsi128_si32(total);
  std::fill_n(step.unit.begin() + half * kOutputs, kOutputs, UnitOf(group));
}

FixedRows FixRows(View<const float> x) {
  FixedRows fixed(x);
  for (int64_t r = 0; r < x.rows; ++r) {
    FixedRow& row = fixed.rows[static_cast<size_t>(r)];
    for (int64_t g = 0; g < x.cols / kGroup; ++g) {
      FixedGroup group;
      if (!FixGroup(x.Row(r) + g * kGroup, group)) {
        row.is_exact = false;
        break;
      }
      row.See(group.unit_exponent);
      const auto at = static_cast<size_t>(r * fixed.steps_of_row + g / 2);
      StoreGroup(group, g % 2, fixed.steps[at], fixed.thirds[at]);
    }
  }
  return fixed;
}

// ---- scales ----

// Scale codes of `count` groups of four outputs in the order of their sums: for each group the
// four outputs. scales: of the first output; the next one is `stride` bytes on.
void InterleaveScales(const uint8_t* scales, int64_t stride, int64_t count, uint8_t* out,
                      ScaleRange& range) {
  constexpr int64_t kAtOnce = 16;
  const auto interleave = [&](int64_t g) HWY_ATTR {
    __m128i rows[kOutputs];
#pragma GCC unroll 4
    for (int64_t n = 0; n < kOutputs; ++n) {
      rows[n] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales + n * stride + g));
      range.See(rows[n]);
    }
    const auto store = [&](__m128i a, __m128i b, int64_t first) HWY_ATTR {
      auto* to = reinterpret_cast<__m128i*>(out + (g + first) * kOutputs);
      _mm_storeu_si128(to, _mm_unpacklo_epi16(a, b));
      _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(a, b));
    };
    store(_mm_unpacklo_epi8(rows[0], rows[1]), _mm_unpacklo_epi8(rows[2], rows[3]), 0);
    store(_mm_unpackhi_epi8(rows[0], rows[1]), _mm_unpackhi_epi8(rows[2], rows[3]), kAtOnce / 2);
  };
  int64_t g = 0;
  for (; g + kAtOnce <= count; g += kAtOnce) interleave(g);
  if (g < count && count >= kAtOnce) {
    interleave(count - kAtOnce);  // some of them again
    g = count;
  }
  for (; g < count; ++g) {
    for (int64_t n = 0; n < kOutputs; ++n) {
      const uint8_t code = scales[n * stride + g];
      out[g * kOutputs + n] = code;
      range.See(_mm_set1_epi8(static_cast<char>(code)));
    }
  }
  if (count % 2 != 0) std::fill_n(out + count * kOutputs, kOutputs, uint8_t{127});
}

// The values of the eight scales of a step.
HWY_INLINE __m256 LoadScales(const uint8_t* codes) {
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(eight), 23));
}

// ---- sums ----

HWY_INLINE void StoreSums(__m256 sums, float* y) {
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}

// Packed weights of a step, of which the last one may be a half.
template <bool kHalf>
HWY_INLINE __m256i LoadStep(const uint8_t* from) {
  if constexpr (!kHalf) return LoadBytes(from);
  return _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// E2M1 codes as bytes: twice the value, plus kBias.
HWY_INLINE Unpacked UnpackBiased(__m256i pairs) {
  return Unpack(pairs, _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

HWY_INLINE __m256i Dot(const Unpacked& w, const int8_t* even_and_odd, int16_t weight) {
  return _mm256_madd_epi16(DotPairs(w, LoadBytes(even_and_odd), LoadBytes(even_and_odd + kGroup)),
                           _mm256_set1_epi16(weight));
}

HWY_INLINE __m256i SumBytes(const __m256i (&dots)[kOutputs]) {
  return SumLanes(dots[0], dots[1], dots[2], dots[3]);
}

// One step of four outputs of a few rows, weights unpacked on the way. from: of the first output.
// x: the first row of them.
template <size_t kRows, bool kHalf>
HWY_INLINE void FewRowsStep(const FixedStep* x, const ThirdStep* thirds, size_t x_stride,
                            const uint8_t* from, int64_t stride, const uint8_t* scales,
                            __m256 (&sums)[kRows]) {
  __m256i dots[kRows][kOutputs];
#pragma GCC unroll 4
  for (int64_t n = 0; n < kOutputs; ++n) {
    const Unpacked w = UnpackBiased(LoadStep<kHalf>(from + n * stride));
#pragma GCC unroll 2
    for (size_t r = 0; r < kRows; ++r) {
      const int8_t* limbs = x[r * x_stride].limbs.data();
      dots[r][n] = _mm256_add_epi32(Dot(w, limbs, 1 << kLimbBits), Dot(w, limbs + 2 * kGroup, 1));
    }
  }
  const __m256 scale = LoadScales(scales);
#pragma GCC unroll 2
  for (size_t r = 0; r < kRows; ++r) {
    const FixedStep& fixed = x[r * x_stride];
    __m256i dot = _mm256_slli_epi32(SumBytes(dots[r]), kThirdBits);
    if (HWY_UNLIKELY(fixed.has_thirds)) {
      __m256i rest[kOutputs];
#pragma GCC unroll 4
      for (int64_t n = 0; n < kOutputs; ++n) {
        rest[n] = Dot(UnpackBiased(LoadStep<kHalf>(from + n * stride)),
                      thirds[r * x_stride].limbs.data(), 1);
      }
      dot = _mm256_add_epi32(dot, SumBytes(rest));
    }
    const __m256i bias = _mm256_set_m128i(_mm_set1_epi32(kBias * fixed.totals[1]),
                                          _mm_set1_epi32(kBias * fixed.totals[0]));
    dot = _mm256_sub_epi32(dot, bias);
    const __m256 factor = _mm256_mul_ps(_mm256_load_ps(fixed.unit.data()), scale);
    sums[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), factor, sums[r]);
  }
}

// Outputs [output, output + 4) of kRows rows from row `row` on.
template <size_t kRows>
void FewRows(const FixedRows& x, int64_t row, const Weight& w, int64_t output, ScaleRange& range,
             View<float> y) {
  const int64_t groups = w.cols / kGroup;
  const int64_t stride = w.cols / 2;
  const auto x_stride = static_cast<size_t>(x.steps_of_row);
  const auto* packed = reinterpret_cast<const uint8_t*>(w.data) + output * stride;
  alignas(32) std::array<uint8_t, kScaleSteps * kStepSums> scales;
  __m256 sums[kRows];
#pragma GCC unroll 2
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  for (int64_t first = 0; first < groups; first += 2 * kScaleSteps) {
    const int64_t count = std::min(2 * kScaleSteps, groups - first);
    InterleaveScales(w.scales + output * groups + first, groups, count, scales.data(), range);
    for (int64_t s = 0; s < (count + 1) / 2; ++s) {
      const int64_t step = first / 2 + s;
      // The next four outputs follow in memory; they are fetched line by line meanwhile.
      const uint8_t* ahead = packed + kOutputs * (stride + step * kStepBytes);
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + kLineBytes);
      const auto at = static_cast<size_t>(row * x.steps_of_row + step);
      if (HWY_LIKELY(2 * s + 1 < count)) {
        FewRowsStep<kRows, false>(&x.steps[at], &x.thirds[at], x_stride, packed + step * kStepBytes,
                                  stride, scales.data() + s * kStepSums, sums);
      } else {
        FewRowsStep<kRows, true>(&x.steps[at], &x.thirds[at], x_stride, packed + step * kStepBytes,
                                 stride, scales.data() + s * kStepSums, sums);
      }
    }
  }
#pragma GCC unroll 2
  for (size_t r = 0; r < kRows; ++r) {
    StoreSums(sums[r], y.Row(row + static_cast<int64_t>(r)) + output);
  }
}

// ---- products ----

// Outputs [output, output + outputs) of all rows. Rows that are not exact have something there at
// first.
void Outputs(const FixedRows& fixed, const Weight& w, int64_t output, int64_t outputs,
             View<float> y) {
  const int64_t summed = outputs / kOutputs * kOutputs;
  ScaleRange range;
  for (int64_t n = output; n < output + summed; n += kOutputs) {
    int64_t r = 0;
    for (; r + 2 <= fixed.x.rows; r += 2) FewRows<2>(fixed, r, w, n, range, y);
    if (r < fixed.x.rows) FewRows<1>(fixed, r, w, n, range, y);
  }
  for (int64_t r = 0; r < fixed.x.rows; ++r) {
    const FixedRow& row = fixed.rows[static_cast<size_t>(r)];
    const int64_t done = row.is_exact && AreNormal(row, range) ? summed : 0;
    Fp4PlainOutputs(fixed.x.Row(r), w, output + done, outputs - done, y.Row(r));
  }
}

void FewRowsImpl(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  const FixedRows fixed = FixRows(x);
  const int64_t units = (w.rows + kUnitOutputs - 1) / kUnitOutputs;
  pool.ParallelFor(units, pool.GrainFor(x.rows * kUnitOutputs * w.cols),
                   [&](int64_t begin, int64_t end, int) {
                     for (int64_t unit = begin; unit < end; ++unit) {
                       const int64_t output = unit * kUnitOutputs;
                       Outputs(fixed, w, output, std::min(kUnitOutputs, w.rows - output), y);
                     }
                   });
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

namespace {
constexpr int64_t kFewRows = 8;  // rows that are cheaper without unpacking ahead
}  // namespace

HWY_EXPORT(FewRowsImpl);

void Fp4PlainOutputs(const float* x, const Weight& w, int64_t output, int64_t outputs, float* y) {
  if (outputs == 0) return;
  std::vector<float> codes(static_cast<size_t>(w.cols));
  for (int64_t n = output; n < output + outputs; ++n) {
    reference::DecodeFp4Codes(w, n, codes.data());
    y[n] = reference::Fp4Dot(x, codes.data(), w.scales + n * (w.cols / reference::kScaleGroup),
                             w.cols);
  }
}

void Fp4Product(View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
  if (x.rows <= kFewRows) {
    HWY_DYNAMIC_DISPATCH(FewRowsImpl)(x, w, y, pool);
  } else {
    Fp4Blocks(x, w, y, pool);
  }
}

}  // namespace minke::simd
#endif
