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
constexpr int64_t kStep = 2 * kGroup;   // dimensions whose bytes StepBytes holds
constexpr int64_t kLanes = kWordLanes;  // keys of a vector
constexpr int64_t kVectors = 2;         // scored together, so that a query byte is loaded once
constexpr int64_t kKeys = kLanes * kVectors;
constexpr int kHeads =
    HWY_MAX_BYTES == 64 ? 4 : 1;        // scored together, so that keys are loaded once
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
  std::vector<float> units;      // [heads]
  bool fits = true;              // else the integers cannot hold them
};

// The exponent e of a group whose values can only be integers of at most 12 times 2^e.
HWY_INLINE int GroupExponent(int32_t largest) {
  return (largest >> 23) - 127 - 3;
}

bool FixHead(const float* x, int64_t dim, StepBytes* steps, float& unit) {
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
  unit = std::bit_cast<float>((127 + low) << 23);
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
      for (uint8_t& byte : *half) byte = static_cast<uint8_t>(byte + kQueryBias);
    }
  }
  return true;
}

Queries FixQueries(View<const float> x) {
  const int64_t steps = (x.cols + kStep - 1) / kStep;
  Queries queries;
  queries.steps.resize(static_cast<size_t>(x.rows * steps));
  queries.units.resize(static_cast<size_t>(x.rows));
  for (int64_t head = 0; head < x.rows && queries.fits; ++head) {
    queries.fits = FixHead(x.Row(head), x.cols, &queries.steps[static_cast<size_t>(head * steps)],
                           queries.units[static_cast<size_t>(head)]);
  }
  return queries;
}

// ---- keys ----

// Keys of a vector.
template <int kSteps>
struct alignas(kVectorBytes) KeyLanes {
  static constexpr int64_t kGroups = int64_t{2} * kSteps;
  using Lanes = std::array<int32_t, kLanes>;

  // Four signed bytes a lane: of each group the even dimensions, four by four, then the odd ones.
  std::array<Lanes, kGroups * 2 * kQuads> codes;
  std::array<Lanes, kGroups> shifts;  // as ShiftOf() has them
  std::array<float, kLanes> units;    // what one unit of the key is worth
  Lanes bias;                         // what the bias of the queries adds to a dot
};

// A shift as DotKeys() applies it.
HWY_INLINE int32_t ShiftOf(int shift) {
#if HWY_TARGET <= HWY_AVX3_DL
  return shift;
#else
  return 1 << shift | 1 << (shift + 16);  // a factor, as two words
#endif
}

// Writes shifts and unit of key `lane`; false if the integers cannot hold it.
template <int kSteps>
bool ShiftKey(const uint8_t* scales, int64_t groups, size_t lane, KeyLanes<kSteps>& keys) {
  int low = scales[0];
  int high = scales[0];
  for (int64_t g = 1; g < groups; ++g) {
    low = std::min<int>(low, scales[g]);
    high = std::max<int>(high, scales[g]);
  }
  constexpr int kOne = 127;  // the code of scale 1
  const bool fits =
      low >= kOne - kExponentMax && high <= kOne + kExponentMax && high - low <= kKeyShiftMax;
  // Codes count in halves of their scale.
  keys.units[lane] = std::bit_cast<float>((fits ? low - 1 : kOne) << 23);
  for (int64_t g = 0; g < KeyLanes<kSteps>::kGroups; ++g) {
    keys.shifts[static_cast<size_t>(g)][lane] = ShiftOf(fits && g < groups ? scales[g] - low : 0);
  }
  return fits;
}

// One group of the keys of a vector. from: of the first one; the next one is `stride` bytes on, and
// those from `count` on are the last one again.
HWY_INLINE void UnpackGroup(const std::byte* from, int64_t stride, int64_t count, int32_t* codes) {
  alignas(16) static constexpr std::array<int8_t, 16> kDoubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                                                  0, -1, -2, -3, -4, -6, -8, -12};
  const auto load = [&](int64_t n) HWY_ATTR {
    const std::byte* key = from + std::min(n, count - 1) * stride;
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
  };
  V8 rows[4];
#pragma GCC unroll 4
  for (int64_t n = 0; n < 4; ++n) rows[n] = EveryFourth(n, load);
  V8 quads[kQuads];
  TransposeRows(rows, quads);
  const D32 d32;
#pragma GCC unroll 4
  for (int64_t q = 0; q < kQuads; ++q) {
    const Unpacked unpacked = Unpack(quads[q], reinterpret_cast<const uint8_t*>(kDoubled.data()));
    hn::Store(hn::BitCast(d32, unpacked.even), d32, codes + q * kLanes);
    hn::Store(hn::BitCast(d32, unpacked.odd), d32, codes + (kQuads + q) * kLanes);
  }
}

// Keys [0, count) of at most kLanes, and which of them the integers hold.
template <int kSteps>
void UnpackKeys(const std::byte* packed, int64_t dim, int64_t count, KeyLanes<kSteps>& keys,
                bool* fits) {
  const int64_t groups = dim / kGroup;
  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, dim);
  for (int64_t n = 0; n < kLanes; ++n) {
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

// Half a group of a head: its even or its odd dimensions, from `first` on.
HWY_INLINE V8 FourInputs(const uint8_t* bytes) {
  int32_t four;
  std::memcpy(&four, bytes, sizeof four);
  return hn::BitCast(D8(), hn::Set(D32(), four));
}

// dots += a group's sums times its factors. half: [heads][even, odd] bytes of the group.
template <int kCount>
HWY_INLINE void AddGroup(const uint8_t* const (&halves)[kCount][2],
                         const std::array<int32_t, kLanes>* const (&codes)[kVectors],
                         const std::array<int32_t, kLanes>* const (&shifts)[kVectors],
                         V32 (&dots)[kCount][kVectors]) {
  const D32 d32;
  const auto code = [&](int64_t v, int64_t at)
                        HWY_ATTR { return hn::BitCast(D8(), hn::Load(d32, codes[v][at].data())); };
#if HWY_TARGET <= HWY_AVX3_DL
  V32 sums[kCount][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kCount * kVectors; ++i) sums[i / kVectors][i % kVectors] = hn::Zero(d32);
#pragma GCC unroll 8
  for (int64_t at = 0; at < 2 * kQuads; ++at) {
    const V8 keys[kVectors] = {code(0, at), code(1, at)};
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h) {
      const V8 input = FourInputs(halves[h][at / kQuads] + at % kQuads * 4);
      sums[h][0] = AddQuads(sums[h][0], input, keys[0]);
      sums[h][1] = AddQuads(sums[h][1], input, keys[1]);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < kCount; ++h) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      dots[h][v] = hn::Add(dots[h][v], hn::Shl(sums[h][v], hn::Load(d32, shifts[v]->data())));
    }
  }
#else
#pragma GCC unroll 4
  for (int h = 0; h < kCount; ++h) {
#pragma GCC unroll 2
    for (int64_t parity = 0; parity < 2; ++parity) {
      // Four products of at most 2 * 192 * 12 stay within 16 bits.
      V16 pairs[kVectors] = {hn::Zero(D16()), hn::Zero(D16())};
#pragma GCC unroll 4
      for (int64_t q = 0; q < kQuads; ++q) {
        const V8 input = FourInputs(halves[h][parity] + q * 4);
        pairs[0] = hn::Add(pairs[0], MulPairs(input, code(0, parity * kQuads + q)));
        pairs[1] = hn::Add(pairs[1], MulPairs(input, code(1, parity * kQuads + q)));
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const V16 factors = hn::BitCast(D16(), hn::Load(d32, shifts[v]->data()));
        dots[h][v] = AddPairs(dots[h][v], pairs[v], factors);
      }
    }
  }
#endif
}

// Dots of kCount heads with kVectors vectors of keys. query: of the first head, kSteps a head.
template <int kCount, int kSteps>
HWY_INLINE void DotKeys(const StepBytes* query, const KeyLanes<kSteps>* keys,
                        V32 (&dots)[kCount][kVectors]) {
  static_assert(kVectors == 2);
#pragma GCC unroll 8
  for (int i = 0; i < kCount * kVectors; ++i) dots[i / kVectors][i % kVectors] = hn::Zero(D32());
#pragma GCC unroll 4
  for (int64_t g = 0; g < KeyLanes<kSteps>::kGroups; ++g) {
    const auto at = static_cast<size_t>(g % 2 * kGroup / 2);
    const auto group = static_cast<size_t>(g);
    const uint8_t* halves[kCount][2];
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h) {
      halves[h][0] = &query[int64_t{h} * kSteps + g / 2].even[at];
      halves[h][1] = &query[int64_t{h} * kSteps + g / 2].odd[at];
    }
    const std::array<int32_t, kLanes>* const codes[kVectors] = {&keys[0].codes[group * 2 * kQuads],
                                                                &keys[1].codes[group * 2 * kQuads]};
    const std::array<int32_t, kLanes>* const shifts[kVectors] = {&keys[0].shifts[group],
                                                                 &keys[1].shifts[group]};
    AddGroup<kCount>(halves, codes, shifts, dots);
  }
}

// Floats to bf16, nearest even. REQUIRES: none is NaN.
HWY_INLINE VF RoundToBf16(VF values) {
  const D32 d32;
  const V32 bits = hn::BitCast(d32, values);
  const V32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const V32 rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF)));
  return hn::BitCast(DF(), hn::And(rounded, hn::Set(d32, static_cast<int32_t>(0xFFFF0000u))));
}

// Adds what one head gives to the sums of a vector of keys. unit: of the head.
template <bool kRound, int kSteps>
HWY_INLINE VF AddTerm(VF sum, V32 dots, const KeyLanes<kSteps>& keys, float unit, float weight) {
  const DF df;
  const VF units = hn::Mul(hn::Load(df, keys.units.data()), hn::Set(df, unit));
  const V32 value = hn::Sub(dots, hn::Load(D32(), keys.bias.data()));
  VF dot = hn::Mul(hn::ConvertTo(df, value), units);
  if (kRound) dot = RoundToBf16(dot);
  VF term = hn::Mul(hn::Max(dot, hn::Zero(df)), hn::Set(df, weight));
  if (kRound) term = RoundToBf16(term);
  return hn::Add(sum, term);
}

// scores: [kKeys]. Integers of several heads first, then their floats: a long chain of latencies
// behind every head's integers would leave the multipliers waiting.
template <bool kRound, int kSteps>
void ScoreKeys(const Queries& queries, std::span<const float> head_weights,
               const KeyLanes<kSteps>* keys, float* scores) {
  constexpr size_t kBlock = 8;  // heads
  using Dots = std::array<std::array<int32_t, kLanes>, kVectors>;
  alignas(kVectorBytes) std::array<Dots, kBlock> dots;
  const D32 d32;
  VF sums[kVectors] = {hn::Zero(DF()), hn::Zero(DF())};
  const auto dot = [&]<int kCount>(size_t head, Dots* out) HWY_ATTR {
    V32 found[kCount][kVectors];
    DotKeys<kCount, kSteps>(&queries.steps[head * static_cast<size_t>(kSteps)], keys, found);
#pragma GCC unroll 4
    for (int h = 0; h < kCount; ++h) {
      hn::Store(found[h][0], d32, out[h][0].data());
      hn::Store(found[h][1], d32, out[h][1].data());
    }
  };
  for (size_t first = 0; first < head_weights.size(); first += kBlock) {
    const size_t count = std::min(kBlock, head_weights.size() - first);
    size_t h = 0;
    for (; h + kHeads <= count; h += kHeads) dot.template operator()<kHeads>(first + h, &dots[h]);
    for (; h < count; ++h) dot.template operator()<1>(first + h, &dots[h]);
    for (h = 0; h < count; ++h) {
      const float unit = queries.units[first + h];
      const float weight = head_weights[first + h];
      sums[0] = AddTerm<kRound>(sums[0], hn::Load(d32, dots[h][0].data()), keys[0], unit, weight);
      sums[1] = AddTerm<kRound>(sums[1], hn::Load(d32, dots[h][1].data()), keys[1], unit, weight);
    }
  }
#pragma GCC unroll 2
  for (int64_t v = 0; v < kVectors; ++v) {
    hn::StoreU(kRound ? RoundToBf16(sums[v]) : sums[v], DF(), scores + v * kLanes);
  }
}

// The sum of a key's shifted codes, kQueryBias times.
template <int kSteps>
void FindBias(KeyLanes<kSteps>* keys) {
  std::array<StepBytes, kSteps> ones;
  for (StepBytes& step : ones) {
    step.even.fill(1);
    step.odd.fill(1);
  }
  V32 totals[1][kVectors];
  DotKeys<1, kSteps>(ones.data(), keys, totals);
  for (int64_t v = 0; v < kVectors; ++v) {
    hn::Store(hn::Mul(totals[0][v], hn::Set(D32(), kQueryBias)), D32(), keys[v].bias.data());
  }
}

template <int kSteps>
void ScoreRun(View<const float> x, const Queries& queries, std::span<const float> head_weights,
              const IndexRun& run, bool round_bf16, std::array<KeyLanes<kSteps>, kVectors>& keys) {
  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, x.cols);
  const auto score = round_bf16 ? ScoreKeys<true, kSteps> : ScoreKeys<false, kSteps>;
  std::array<float, kKeys> found;
  for (int64_t first = 0; first < run.row_count; first += kKeys) {
    const int64_t count = std::min(kKeys, run.row_count - first);
    const std::byte* packed = run.keys + first * row_bytes;
    std::array<bool, kKeys> fits{};
    for (int64_t v = 0; v * kLanes < count; ++v) {
      UnpackKeys<kSteps>(packed + v * kLanes * row_bytes, x.cols,
                         std::min(kLanes, count - v * kLanes), keys[static_cast<size_t>(v)],
                         &fits[static_cast<size_t>(v * kLanes)]);
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
  std::array<KeyLanes<kSteps>, kVectors> keys{};
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
