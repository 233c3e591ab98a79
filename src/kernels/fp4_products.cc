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
constexpr int64_t kStepGroups = kVectorBlocks;
constexpr int64_t kStep = kStepGroups * kGroup;  // inputs whose weights fill a vector
constexpr int64_t kOutputs = 4;                  // outputs summed together
constexpr int64_t kStepSums = kStepGroups * kOutputs;
constexpr int64_t kRowsTogether = kVectorBlocks;  // rows that share unpacked weights
constexpr int64_t kUnitOutputs = 32;              // outputs a thread takes at once
constexpr int64_t kScaleSteps = 64;               // steps whose scales are put in order together
constexpr int64_t kLineBytes = 64;
constexpr int kLimbBits = 8;
constexpr int kBias = 12;  // of twice an E2M1 value, as a byte

// A step of a row of x in fixed point: the high bytes of the even and of the odd inputs, the low
// bytes likewise, and for each sum (of every group, four outputs) the value of one and what the
// bias of the weights adds.
struct alignas(kVectorBytes) FixedStep {
  std::array<uint8_t, 4 * kVectorBytes> limbs;
  std::array<float, kStepSums> unit;
  std::array<int32_t, kStepSums> bias;
  bool has_thirds;
};
struct alignas(kVectorBytes) ThirdStep {
  std::array<uint8_t, 2 * kVectorBytes> limbs;  // the third bytes of the even and of the odd inputs
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

// in_step: which group of the step it is.
HWY_INLINE void StoreGroup(const FixedGroup& group, int64_t in_step, FixedStep& step,
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
  const auto at = static_cast<size_t>(in_step * kBlockBytes);
  StoreSplit(high, &step.limbs[at], &step.limbs[kVectorBytes + at]);
  StoreSplit(low, &step.limbs[2 * kVectorBytes + at], &step.limbs[3 * kVectorBytes + at]);
  StoreSplit(group.third, &thirds.limbs[at], &thirds.limbs[kVectorBytes + at]);
  step.has_thirds |= group.has_thirds;
  __m128i total =
      _mm_add_epi32(_mm256_castsi256_si128(group.sum), _mm256_extracti128_si256(group.sum, 1));
  total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0x4E));
  total = _mm_add_epi32(total, _mm_shuffle_epi32(total, 0xB1));
  std::fill_n(step.bias.begin() + in_step * kOutputs, kOutputs, kBias * _mm_cvtsi128_si32(total));
  std::fill_n(step.unit.begin() + in_step * kOutputs, kOutputs, UnitOf(group));
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
      const auto at = static_cast<size_t>(r * fixed.steps_of_row + g / kStepGroups);
      StoreGroup(group, g % kStepGroups, fixed.steps[at], fixed.thirds[at]);
    }
  }
  return fixed;
}

// ---- scales ----

// Scale codes of `count` groups of four outputs in the order of their sums: for each group the
// four outputs, up to a whole step. scales: of the first output; the next one is `stride` bytes on.
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
  const int64_t missing = (kStepGroups - count % kStepGroups) % kStepGroups;
  std::fill_n(out + count * kOutputs, missing * kOutputs, uint8_t{127});
}

// The values of the scales of a step.
HWY_INLINE VF LoadScales(const uint8_t* codes) {
  return hn::BitCast(DF(), hn::ShiftLeft<23>(LoadWidened(codes)));
}

// ---- sums ----

// Of every output the sum of its even groups, then that of its odd ones.
using Sums = __m256;

// sums + dots * factors, group after group.
HWY_INLINE Sums AddGroups(Sums sums, VF dots, VF factors) {
#if HWY_MAX_BYTES == 64
  sums =
      _mm256_fmadd_ps(_mm512_castps512_ps256(dots.raw), _mm512_castps512_ps256(factors.raw), sums);
  return _mm256_fmadd_ps(_mm512_extractf32x8_ps(dots.raw, 1),
                         _mm512_extractf32x8_ps(factors.raw, 1), sums);
#else
  return _mm256_fmadd_ps(dots.raw, factors.raw, sums);
#endif
}

HWY_INLINE void StoreSums(Sums sums, float* y) {
  _mm_storeu_ps(y, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}

// E2M1 codes as bytes: twice the value, plus kBias. groups: how many of the step there are.
template <bool kPart>
HWY_INLINE Unpacked UnpackStep(const uint8_t* from, int64_t groups) {
  alignas(16) static constexpr std::array<uint8_t, 16> kBiased = {12, 13, 14, 15, 16, 18, 20, 24,
                                                                  12, 11, 10, 9,  8,  6,  4,  0};
  return Unpack(kPart ? LoadBlocks(from, groups) : hn::LoadU(D8(), from), kBiased.data());
}

HWY_INLINE V8 LoadLimbs(const uint8_t* limbs, int64_t vector) {
  return hn::Load(D8(), limbs + vector * kVectorBytes);
}

// Products with one limb, two words added, and with both, four bytes added.
HWY_INLINE V32 DotLimb(const Unpacked& w, const uint8_t* limbs) {
  return AddQuads(AddQuads(hn::Zero(D32()), w.even, LoadLimbs(limbs, 0)), w.odd,
                  LoadLimbs(limbs, 1));
}
HWY_INLINE V32 DotLimbs(const Unpacked& w, const uint8_t* limbs) {
#if HWY_TARGET <= HWY_AVX3_DL
  const V32 high = hn::ShiftLeft<kLimbBits>(DotLimb(w, limbs));
  return AddQuads(AddQuads(high, w.even, LoadLimbs(limbs, 2)), w.odd, LoadLimbs(limbs, 3));
#else
  const auto pairs = [&](int64_t limb) HWY_ATTR {
    return hn::Add(MulPairs(w.even, LoadLimbs(limbs, 2 * limb)),
                   MulPairs(w.odd, LoadLimbs(limbs, 2 * limb + 1)));
  };
  const V32 high = AddPairs(hn::Zero(D32()), pairs(0), hn::Set(D16(), 1 << kLimbBits));
  return AddPairs(high, pairs(1), hn::Set(D16(), 1));
#endif
}

// One step of four outputs of a few rows, weights unpacked on the way. from: of the first output.
// x: the first row of them.
template <size_t kRows, bool kPart>
HWY_INLINE void FewRowsStep(const FixedStep* x, const ThirdStep* thirds, size_t x_stride,
                            const uint8_t* from, int64_t stride, int64_t groups,
                            const uint8_t* scales, Sums (&sums)[kRows]) {
  V32 dots[kRows][kOutputs];
#pragma GCC unroll 4
  for (int64_t n = 0; n < kOutputs; ++n) {
    const Unpacked w = UnpackStep<kPart>(from + n * stride, groups);
#pragma GCC unroll 4
    for (size_t r = 0; r < kRows; ++r) dots[r][n] = DotLimbs(w, x[r * x_stride].limbs.data());
  }
  const VF scale = LoadScales(scales);
#pragma GCC unroll 4
  for (size_t r = 0; r < kRows; ++r) {
    const FixedStep& fixed = x[r * x_stride];
    V32 dot = hn::ShiftLeft<kThirdBits>(SumLanes(dots[r][0], dots[r][1], dots[r][2], dots[r][3]));
    if (HWY_UNLIKELY(fixed.has_thirds)) {
      V32 rest[kOutputs];
#pragma GCC unroll 4
      for (int64_t n = 0; n < kOutputs; ++n) {
        rest[n] = DotLimb(UnpackStep<kPart>(from + n * stride, groups),
                          thirds[r * x_stride].limbs.data());
      }
      dot = hn::Add(dot, SumLanes(rest[0], rest[1], rest[2], rest[3]));
    }
    dot = hn::Sub(dot, hn::Load(D32(), fixed.bias.data()));
    const VF factor = hn::Mul(hn::Load(DF(), fixed.unit.data()), scale);
    sums[r] = AddGroups(sums[r], hn::ConvertTo(DF(), dot), factor);
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
  std::array<uint8_t, kScaleSteps * kStepSums> scales;
  Sums sums[kRows];
#pragma GCC unroll 4
  for (Sums& sum : sums) sum = _mm256_setzero_ps();
  for (int64_t first = 0; first < groups; first += kStepGroups * kScaleSteps) {
    const int64_t count = std::min(kStepGroups * kScaleSteps, groups - first);
    const uint8_t* codes = w.scales + output * groups + first;
    // Two blocks of outputs ahead: one takes no longer than the memory.
    for (int64_t line = 0; line < kOutputs * count; line += kLineBytes) {
      __builtin_prefetch(codes + 2 * kOutputs * groups + line);
    }
    InterleaveScales(codes, groups, count, scales.data(), range);
    for (int64_t s = 0; kStepGroups * s < count; ++s) {
      const int64_t step = first / kStepGroups + s;
      // The next four outputs follow in memory; they are fetched line by line meanwhile.
      const uint8_t* ahead = packed + kOutputs * (stride + step * kVectorBytes);
#pragma GCC unroll 4
      for (int64_t line = 0; line < kOutputs * kVectorBytes; line += kLineBytes) {
        __builtin_prefetch(ahead + line);
      }
      const auto at = static_cast<size_t>(row * x.steps_of_row + step);
      const int64_t here = count - kStepGroups * s;
      const uint8_t* from = packed + step * kVectorBytes;
      const uint8_t* scale = scales.data() + s * kStepSums;
      if (HWY_LIKELY(here >= kStepGroups)) {
        FewRowsStep<kRows, false>(&x.steps[at], &x.thirds[at], x_stride, from, stride, here, scale,
                                  sums);
      } else {
        FewRowsStep<kRows, true>(&x.steps[at], &x.thirds[at], x_stride, from, stride, here, scale,
                                 sums);
      }
    }
  }
#pragma GCC unroll 4
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
    if constexpr (kRowsTogether == 4) {
      for (; r + 4 <= fixed.x.rows; r += 4) FewRows<4>(fixed, r, w, n, range, y);
      if (r + 3 == fixed.x.rows) {
        FewRows<3>(fixed, r, w, n, range, y);
        continue;
      }
    }
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
