// Scores of the sparse indexer (architecture.md 4.5) in integers. Queries and keys are Q4I: twice
// an E2M1 value is an integer from -12 to 12, and every group of 32 has a power of two as its
// scale. So a dot product is a sum of integers with a shift per group; it has no order and no error
// until it becomes a float, as kernels.h defines it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/index_scores.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/integer_dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minke::simd::HWY_NAMESPACE {
namespace {

constexpr int64_t kGroup = reference::kScaleGroup;
constexpr int64_t kStep = 2 * kGroup;  // dimensions whose packed codes fill a vector
constexpr int64_t kKeys = 8;           // keys scored together
constexpr int kQueryBias = 96;         // makes a shifted query code an unsigned byte
constexpr int kQueryShiftMax = 3;      // 12 << 3 = 96
constexpr int kKeyShiftMax = 13;       // within 16 bits, and the sums within 32
constexpr int kExponentMax = 50;       // of both sides: no product leaves the normal floats

// Bytes of one step: its even dimensions, then its odd ones, the first group before the second.
struct alignas(32) StepBytes {
  std::array<uint8_t, kGroup> even;
  std::array<uint8_t, kGroup> odd;
};
struct alignas(32) StepShifts {
  std::array<int16_t, kGroup / 2> factors;  // 1 << shift, eight times for each group
};

// ---- queries ----

// The heads of one query as biased bytes, and what one unit of a head is worth.
struct Queries {
  std::vector<StepBytes> steps;  // [heads][steps]
  std::vector<int> exponents;    // [heads]
  bool fits = true;              // else the integers cannot hold them
};

// The exponent e of a group whose values can only be integers of at most 12 times 2^e.
HWY_INLINE int GroupExponent(int32_t largest) {
  return (largest >> 23) - 127 - 3;
}

bool FixHead(const float* x, int64_t dim, StepBytes* steps, int& head_exponent) {
  const int64_t groups = dim / kGroup;
  int low = kExponentMax + 1;
  int high = -kExponentMax - 1;
  for (int64_t g = 0; g < groups; ++g) {
    __m256 values[4];
    LoadGroup(x + g * kGroup, values);
    const int32_t largest = LargestMagnitude(values);
    if (largest == 0) continue;  // fits any exponent
    low = std::min(low, GroupExponent(largest));
    high = std::max(high, GroupExponent(largest));
  }
  if (high < low) low = high = 0;
  if (low < -kExponentMax || high > kExponentMax || high - low > kQueryShiftMax) return false;
  head_exponent = low;
  const auto factor = std::bit_cast<float>((127 - low) << 23);
  for (int64_t g = 0; g < groups; ++g) {
    __m256 values[4];
    LoadGroup(x + g * kGroup, values);
    __m256i integers[4];
    if (!ToIntegers(values, factor, integers)) return false;
    if (std::bit_cast<float>(LargestMagnitude(values)) * factor > kQueryBias) return false;
    const auto at = static_cast<size_t>(g % 2 * (kGroup / 2));
    StoreSplit(integers, &steps[g / 2].even[at], &steps[g / 2].odd[at]);
  }
  for (int64_t s = 0; 2 * s < groups; ++s) {
    for (auto* half : {&steps[s].even, &steps[s].odd}) {
      StoreBytes(_mm256_add_epi8(LoadBytes(half->data()), _mm256_set1_epi8(kQueryBias)),
                 half->data());
    }
  }
  return true;
}

Queries FixQueries(View<const float> x) {
  const int64_t steps = (x.cols + kStep - 1) / kStep;
  Queries queries;
  queries.steps.resize(static_cast<size_t>(x.rows * steps));
  queries.exponents.resize(static_cast<size_t>(x.rows));
  for (int64_t head = 0; head < x.rows && queries.fits; ++head) {
    queries.fits = FixHead(x.Row(head), x.cols, &queries.steps[static_cast<size_t>(head * steps)],
                           queries.exponents[static_cast<size_t>(head)]);
  }
  return queries;
}

// ---- keys ----

// kKeys keys as signed bytes.
struct Keys {
  std::vector<StepBytes> steps;    // [steps][kKeys]
  std::vector<StepShifts> shifts;  // [steps][kKeys]
  alignas(32) std::array<int32_t, kKeys> exponents;
  alignas(32) std::array<int32_t, kKeys> bias;  // what the bias of the queries adds to a dot
};

// Slot `slot` of `keys`; false if the integers cannot hold the key.
bool UnpackKey(const std::byte* packed, int64_t dim, int64_t slot, Keys& keys) {
  const auto* pairs = reinterpret_cast<const uint8_t*>(packed);
  const int64_t groups = dim / kGroup;
  const uint8_t* scales = pairs + dim / 2;
  const auto [low, high] = std::minmax_element(scales, scales + groups);
  constexpr int kOne = 127;  // the code of scale 1
  if (*low < kOne - kExponentMax || *high > kOne + kExponentMax || *high - *low > kKeyShiftMax) {
    return false;
  }
  keys.exponents[static_cast<size_t>(slot)] = *low - kOne;
  const __m128i table = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
  for (int64_t g = 0; g < groups; g += 2) {
    const auto at = static_cast<size_t>(g / 2 * kKeys + slot);
    const auto* from = reinterpret_cast<const __m128i*>(pairs + g * kGroup / 2);
    const bool has_second = g + 1 < groups;
    const __m256i codes = _mm256_set_m128i(
        has_second ? _mm_loadu_si128(from + 1) : _mm_setzero_si128(), _mm_loadu_si128(from));
    const Unpacked unpacked = Unpack(codes, table);
    StoreBytes(unpacked.even, keys.steps[at].even.data());
    StoreBytes(unpacked.odd, keys.steps[at].odd.data());
    const auto first = static_cast<int16_t>(1 << (scales[g] - *low));
    const auto second = static_cast<int16_t>(has_second ? 1 << (scales[g + 1] - *low) : 1);
    StoreBytes(_mm256_set_m128i(_mm_set1_epi16(second), _mm_set1_epi16(first)),
               keys.shifts[at].factors.data());
  }
  return true;
}

// ---- dots ----

// Dots of four keys from `slot` on with one head, in two parts.
template <int kSteps>
HWY_INLINE __m256i FourDots(const StepBytes* query, const Keys& keys, int64_t slot) {
  __m256i sums[4];
#pragma GCC unroll 4
  for (int64_t k = 0; k < 4; ++k) sums[k] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int64_t s = 0; s < kSteps; ++s) {
    const Unpacked head{LoadBytes(query[s].even.data()), LoadBytes(query[s].odd.data())};
#pragma GCC unroll 4
    for (int64_t k = 0; k < 4; ++k) {
      const auto at = static_cast<size_t>(s * kKeys + slot + k);
      const __m256i pairs = DotPairs(head, LoadBytes(keys.steps[at].even.data()),
                                     LoadBytes(keys.steps[at].odd.data()));
      sums[k] = _mm256_add_epi32(
          sums[k], _mm256_madd_epi16(pairs, LoadBytes(keys.shifts[at].factors.data())));
    }
  }
  return SumLanes(sums[0], sums[1], sums[2], sums[3]);
}

template <int kSteps>
HWY_INLINE __m256i EightDots(const StepBytes* query, const Keys& keys) {
  const __m256i first = FourDots<kSteps>(query, keys, 0);
  const __m256i second = FourDots<kSteps>(query, keys, 4);
  return _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20),
                          _mm256_permute2x128_si256(first, second, 0x31));
}

// Eight floats to bf16, nearest even. REQUIRES: none is NaN.
HWY_INLINE __m256 RoundEight(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  return _mm256_castsi256_ps(
      _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
}

template <bool kRound, int kSteps>
void ScoreKeys(const Queries& queries, std::span<const float> head_weights, const Keys& keys,
               float* scores) {
  const __m256i bias = LoadBytes(keys.bias.data());
  const __m256i exponents = LoadBytes(keys.exponents.data());
  __m256 sum = _mm256_setzero_ps();
  for (size_t head = 0; head < head_weights.size(); ++head) {
    const __m256i dots = _mm256_sub_epi32(
        EightDots<kSteps>(&queries.steps[head * static_cast<size_t>(kSteps)], keys), bias);
    // Keys count in halves of their scale; the unit of the queries is exact.
    const __m256i exponent =
        _mm256_add_epi32(exponents, _mm256_set1_epi32(queries.exponents[head] - 1 + 127));
    const __m256 unit = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
    __m256 dot = _mm256_mul_ps(_mm256_cvtepi32_ps(dots), unit);
    if (kRound) dot = RoundEight(dot);
    __m256 term =
        _mm256_mul_ps(_mm256_max_ps(dot, _mm256_setzero_ps()), _mm256_set1_ps(head_weights[head]));
    if (kRound) term = RoundEight(term);
    sum = _mm256_add_ps(sum, term);
  }
  if (kRound) sum = RoundEight(sum);
  _mm256_storeu_ps(scores, sum);
}

// The sum of a key's shifted codes, kQueryBias times.
template <int kSteps>
void FindBias(Keys& keys) {
  std::array<StepBytes, kSteps> ones;
  for (StepBytes& step : ones) {
    step.even.fill(1);
    step.odd.fill(1);
  }
  const __m256i total = EightDots<kSteps>(ones.data(), keys);
  StoreBytes(_mm256_mullo_epi32(total, _mm256_set1_epi32(kQueryBias)), keys.bias.data());
}

template <int kSteps>
void ScoreRun(View<const float> x, const Queries& queries, std::span<const float> head_weights,
              const IndexRun& run, bool round_bf16, Keys& keys) {
  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, x.cols);
  const auto score = round_bf16 ? ScoreKeys<true, kSteps> : ScoreKeys<false, kSteps>;
  std::array<float, kKeys> found;
  for (int64_t first = 0; first < run.row_count; first += kKeys) {
    const int64_t count = std::min(kKeys, run.row_count - first);
    const std::byte* packed = run.keys + first * row_bytes;
    std::array<bool, kKeys> fits{};
    for (int64_t i = 0; i < count; ++i) {
      fits[static_cast<size_t>(i)] = UnpackKey(packed + i * row_bytes, x.cols, i, keys);
    }
    FindBias<kSteps>(keys);
    score(queries, head_weights, keys, found.data());
    std::copy_n(found.begin(), count, run.scores + first);
    for (int64_t i = 0; i < count; ++i) {
      if (fits[static_cast<size_t>(i)]) continue;
      const IndexRun one{packed + i * row_bytes, 1, run.scores + first + i};
      reference::IndexScores(x, head_weights, RowFormat::kFp4Group32, {&one, 1}, round_bf16);
    }
  }
}

template <int kSteps>
void ScoreRuns(View<const float> x, const Queries& queries, std::span<const float> head_weights,
               std::span<const IndexRun> runs, bool round_bf16) {
  Keys keys;
  keys.steps.resize(kSteps * kKeys);
  keys.shifts.resize(kSteps * kKeys);
  keys.exponents.fill(0);
  for (const IndexRun& run : runs) {
    ScoreRun<kSteps>(x, queries, head_weights, run, round_bf16, keys);
  }
}

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// False if nothing was scored: the rows or the queries are not what the integers can hold.
bool IndexScoresImpl(const View<const float>& x, std::span<const float> head_weights,
                     std::span<const IndexRun> runs, bool round_bf16) {
  if (x.cols % kGroup != 0 || !AllFinite(head_weights)) return false;
  const Queries queries = FixQueries(x);
  if (!queries.fits) return false;
  switch ((x.cols + kStep - 1) / kStep) {
    case 1:
      ScoreRuns<1>(x, queries, head_weights, runs, round_bf16);
      return true;
    case 2:
      ScoreRuns<2>(x, queries, head_weights, runs, round_bf16);
      return true;
    default:
      return false;
  }
}

}  // namespace
}  // namespace minke::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minke::simd {

HWY_EXPORT(IndexScoresImpl);

void IndexScores(View<const float> queries, std::span<const float> head_weights,
                 RowFormat key_format, std::span<const IndexRun> runs, bool round_bf16) {
  CHECK(static_cast<int64_t>(head_weights.size()) == queries.rows);
  if (key_format != RowFormat::kFp4Group32 ||
      !HWY_DYNAMIC_DISPATCH(IndexScoresImpl)(queries, head_weights, runs, round_bf16)) {
    reference::IndexScores(queries, head_weights, key_format, runs, round_bf16);
  }
}

}  // namespace minke::simd
#endif
