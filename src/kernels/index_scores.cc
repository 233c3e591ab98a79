// Scores of the sparse indexer (architecture.md 4.5) in integers. Queries and keys are Q4I: twice
// an E2M1 value is an integer from -12 to 12, and every group of 32 has a power of two as its
// scale. So a dot product is a sum of integers with a shift per group; it has no order and no error
// until it becomes a float, as kernels.h defines it. Every 32-bit lane of a vector belongs to one
// key and takes four of its dimensions at once, so no lanes have to be added up.
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
constexpr int64_t kOctet = 8;          // keys of a vector, each in a lane of 32 bits
constexpr int64_t kOctets = 2;         // scored together, so that a query byte is loaded once
constexpr int64_t kKeys = kOctet * kOctets;
constexpr int64_t kQuads = kGroup / 8;  // of even dimensions in a group, and of odd ones
constexpr int kQueryBias = 96;          // makes a shifted query code an unsigned byte
constexpr int kQueryShiftMax = 3;       // 12 << 3 = 96
constexpr int kKeyShiftMax = 13;        // within 16 bits, and the sums within 32
constexpr int kExponentMax = 50;        // of both sides: no product leaves the normal floats

// Bytes of one step: its even dimensions, then its odd ones, the first group before the second.
struct alignas(32) StepBytes {
  std::array<uint8_t, kGroup> even;
  std::array<uint8_t, kGroup> odd;
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

// Eight keys, one in each lane.
template <int kSteps>
struct alignas(32) Octet {
  static constexpr int64_t kGroups = int64_t{2} * kSteps;
  using Lanes = std::array<int32_t, kOctet>;

  // Four signed bytes a lane: of each group the even dimensions, four by four, then the odd ones.
  std::array<Lanes, kGroups * 2 * kQuads> codes;
  std::array<Lanes, kGroups> factors;  // 1 << shift, as two words
  Lanes exponents;
  Lanes bias;  // what the bias of the queries adds to a dot
};

// Writes shifts and exponent of key `lane`; false if the integers cannot hold it.
template <int kSteps>
bool ShiftKey(const uint8_t* scales, int64_t groups, size_t lane, Octet<kSteps>& keys) {
  int low = scales[0];
  int high = scales[0];
  for (int64_t g = 1; g < groups; ++g) {
    low = std::min<int>(low, scales[g]);
    high = std::max<int>(high, scales[g]);
  }
  constexpr int kOne = 127;  // the code of scale 1
  const bool fits =
      low >= kOne - kExponentMax && high <= kOne + kExponentMax && high - low <= kKeyShiftMax;
  keys.exponents[lane] = fits ? low - kOne : 0;
  for (int64_t g = 0; g < Octet<kSteps>::kGroups; ++g) {
    const int32_t factor = fits && g < groups ? 1 << (scales[g] - low) : 0;
    keys.factors[static_cast<size_t>(g)][lane] = factor | factor << 16;
  }
  return fits;
}

// One group of eight keys. from: of the first one; the next one is `stride` bytes on, and those
// from `count` on are the last one again.
HWY_INLINE void UnpackGroup(const std::byte* from, int64_t stride, int64_t count, int32_t* codes) {
  const auto load = [&](int64_t n) HWY_ATTR {
    const std::byte* key = from + std::min(n, count - 1) * stride;
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
  };
  __m256i rows[4];
#pragma GCC unroll 4
  for (int64_t n = 0; n < 4; ++n) rows[n] = _mm256_set_m128i(load(n + 4), load(n));
  __m256i quads[kQuads];
  TransposeEight(rows, quads);
#pragma GCC unroll 4
  for (int64_t q = 0; q < kQuads; ++q) {
    const Unpacked unpacked =
        Unpack(quads[q], _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
    StoreBytes(unpacked.even, codes + q * kOctet);
    StoreBytes(unpacked.odd, codes + (kQuads + q) * kOctet);
  }
}

// Keys [0, count) of at most eight, and which of them the integers hold.
template <int kSteps>
void UnpackOctet(const std::byte* packed, int64_t dim, int64_t count, Octet<kSteps>& keys,
                 bool* fits) {
  const int64_t groups = dim / kGroup;
  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, dim);
  for (int64_t n = 0; n < kOctet; ++n) {
    const std::byte* scales = packed + std::min(n, count - 1) * row_bytes + dim / 2;
    const bool held = ShiftKey<kSteps>(reinterpret_cast<const uint8_t*>(scales), groups,
                                       static_cast<size_t>(n), keys);
    if (n < count) fits[n] = held;
  }
  for (int64_t g = 0; g < groups; ++g) {
    UnpackGroup(packed + g * kGroup / 2, row_bytes, count,
                keys.codes[static_cast<size_t>(g * 2 * kQuads)].data());
  }
}

// ---- dots ----

// Dots of one head with two octets of keys.
template <int kSteps>
HWY_INLINE void DotOctets(const StepBytes* query, const Octet<kSteps>* keys,
                          __m256i (&dots)[kOctets]) {
  static_assert(kOctets == 2);
  dots[0] = dots[1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int64_t g = 0; g < Octet<kSteps>::kGroups; ++g) {
    const auto add = [&](const std::array<uint8_t, kGroup>& bytes, int64_t parity) HWY_ATTR {
      // Four products of at most 2 * 192 * 12 stay within 16 bits.
      __m256i pairs[kOctets] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 4
      for (int64_t q = 0; q < kQuads; ++q) {
        int32_t four;
        std::memcpy(&four, &bytes[static_cast<size_t>(g % 2 * kGroup / 2 + 4 * q)], sizeof four);
        const __m256i input = _mm256_set1_epi32(four);
        const auto at = static_cast<size_t>((g * 2 + parity) * kQuads + q);
        pairs[0] =
            _mm256_add_epi16(pairs[0], _mm256_maddubs_epi16(input, LoadBytes(&keys[0].codes[at])));
        pairs[1] =
            _mm256_add_epi16(pairs[1], _mm256_maddubs_epi16(input, LoadBytes(&keys[1].codes[at])));
      }
      const auto group = static_cast<size_t>(g);
      dots[0] = _mm256_add_epi32(dots[0],
                                 _mm256_madd_epi16(pairs[0], LoadBytes(&keys[0].factors[group])));
      dots[1] = _mm256_add_epi32(dots[1],
                                 _mm256_madd_epi16(pairs[1], LoadBytes(&keys[1].factors[group])));
    };
    add(query[g / 2].even, 0);
    add(query[g / 2].odd, 1);
  }
}

// Eight floats to bf16, nearest even. REQUIRES: none is NaN.
HWY_INLINE __m256 RoundEight(__m256 values) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  return _mm256_castsi256_ps(
      _mm256_and_si256(rounded, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
}

// Adds what one head gives to the sums of an octet.
template <bool kRound, int kSteps>
HWY_INLINE __m256 AddTerm(__m256 sum, __m256i dots, const Octet<kSteps>& keys, int head_exponent,
                          float weight) {
  // Keys count in halves of their scale; the unit of the queries is exact.
  const __m256i exponent =
      _mm256_add_epi32(LoadBytes(&keys.exponents), _mm256_set1_epi32(head_exponent - 1 + 127));
  const __m256 unit = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  const __m256i value = _mm256_sub_epi32(dots, LoadBytes(&keys.bias));
  __m256 dot = _mm256_mul_ps(_mm256_cvtepi32_ps(value), unit);
  if (kRound) dot = RoundEight(dot);
  __m256 term = _mm256_mul_ps(_mm256_max_ps(dot, _mm256_setzero_ps()), _mm256_set1_ps(weight));
  if (kRound) term = RoundEight(term);
  return _mm256_add_ps(sum, term);
}

// scores: [kKeys]. Integers of several heads first, then their floats: a long chain of latencies
// behind every head's integers would leave the multipliers waiting.
template <bool kRound, int kSteps>
void ScoreKeys(const Queries& queries, std::span<const float> head_weights,
               const Octet<kSteps>* keys, float* scores) {
  constexpr size_t kHeads = 8;
  using Dots = std::array<std::array<int32_t, kOctet>, kOctets>;
  alignas(32) std::array<Dots, kHeads> dots;
  __m256 sums[kOctets] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (size_t first = 0; first < head_weights.size(); first += kHeads) {
    const size_t count = std::min(kHeads, head_weights.size() - first);
    for (size_t h = 0; h < count; ++h) {
      __m256i both[kOctets];
      DotOctets<kSteps>(&queries.steps[(first + h) * static_cast<size_t>(kSteps)], keys, both);
      StoreBytes(both[0], dots[h][0].data());
      StoreBytes(both[1], dots[h][1].data());
    }
    for (size_t h = 0; h < count; ++h) {
      const int exponent = queries.exponents[first + h];
      const float weight = head_weights[first + h];
      sums[0] = AddTerm<kRound>(sums[0], LoadBytes(&dots[h][0]), keys[0], exponent, weight);
      sums[1] = AddTerm<kRound>(sums[1], LoadBytes(&dots[h][1]), keys[1], exponent, weight);
    }
  }
#pragma GCC unroll 2
  for (int64_t o = 0; o < kOctets; ++o) {
    _mm256_storeu_ps(scores + o * kOctet, kRound ? RoundEight(sums[o]) : sums[o]);
  }
}

// The sum of a key's shifted codes, kQueryBias times.
template <int kSteps>
void FindBias(Octet<kSteps>* keys) {
  std::array<StepBytes, kSteps> ones;
  for (StepBytes& step : ones) {
    step.even.fill(1);
    step.odd.fill(1);
  }
  __m256i totals[kOctets];
  DotOctets<kSteps>(ones.data(), keys, totals);
  for (int64_t o = 0; o < kOctets; ++o) {
    StoreBytes(_mm256_mullo_epi32(totals[o], _mm256_set1_epi32(kQueryBias)), keys[o].bias.data());
  }
}

template <int kSteps>
void ScoreRun(View<const float> x, const Queries& queries, std::span<const float> head_weights,
              const IndexRun& run, bool round_bf16, std::array<Octet<kSteps>, kOctets>& keys) {
  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, x.cols);
  const auto score = round_bf16 ? ScoreKeys<true, kSteps> : ScoreKeys<false, kSteps>;
  std::array<float, kKeys> found;
  for (int64_t first = 0; first < run.row_count; first += kKeys) {
    const int64_t count = std::min(kKeys, run.row_count - first);
    const std::byte* packed = run.keys + first * row_bytes;
    std::array<bool, kKeys> fits{};
    for (int64_t o = 0; o * kOctet < count; ++o) {
      UnpackOctet<kSteps>(packed + o * kOctet * row_bytes, x.cols,
                          std::min(kOctet, count - o * kOctet), keys[static_cast<size_t>(o)],
                          &fits[static_cast<size_t>(o * kOctet)]);
    }
    FindBias<kSteps>(keys.data());
    score(queries, head_weights, keys.data(), found.data());
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
  std::array<Octet<kSteps>, kOctets> keys{};
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
