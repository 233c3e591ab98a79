#include "bench/peaks.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace minke {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kVectorBytes = 32;
constexpr int64_t kLineBytes = 64;
// Bytes read in one step, as whole lines of four streams: one stream alone leaves the memory idle
// where it changes pages.
constexpr int64_t kStreams = 4;
constexpr int64_t kStepBytes = 2 * kLineBytes;
// Far enough ahead for the memory's latency, near enough to stay in the first cache.
constexpr int64_t kPrefetchBytes = 1024;
constexpr int64_t kChains = 12;  // independent sums: latency times instructions per cycle, and more

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Keeps the compiler from leaving out what nobody uses.
void Use(__m256i value) {
  asm volatile("" : : "x"(value));
}

// `bytes` is a multiple of kStreams * kStepBytes.
void ReadBytes(const std::byte* data, int64_t bytes) {
  const int64_t stream_bytes = bytes / kStreams;
  __m256i sums[kStreams * kStepBytes / kVectorBytes] = {};
  for (int64_t at = 0; at < stream_bytes; at += kStepBytes) {
#pragma GCC unroll 4
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* from = data + stream * stream_bytes + at;
      _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes + kLineBytes), _MM_HINT_T0);
#pragma GCC unroll 4
      for (int64_t part = 0; part < kStepBytes / kVectorBytes; ++part) {
        __m256i& sum = sums[stream * kStepBytes / kVectorBytes + part];
        sum = _mm256_xor_si256(
            sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(from + part * kVectorBytes)));
      }
    }
  }
  for (const __m256i& sum : sums) Use(sum);
}

// Runs `block` of `units` units on every thread until the time is over.
template <typename Block>
double MeasureRate(double seconds, int64_t units, ThreadPool& pool, const Block& block) {
  std::atomic<int64_t> blocks{0};
  const Clock::time_point start = Clock::now();
  pool.ParallelFor(pool.threads(), 1, [&](int64_t, int64_t, int) {
    int64_t done = 0;
    while (SecondsSince(start) < seconds) {
      block();
      ++done;
    }
    blocks += done;
  });
  return static_cast<double>(blocks * units) / SecondsSince(start);
}

constexpr int64_t kBlockSteps = 4096;

// Blocks of kBlockSteps * kChains instructions, or pairs of them, on registers: in the widest
// vectors that this processor has.
struct Block {
  void (*run)();
  int64_t lanes;  // multiply-adds of an instruction
};

void FmaBlock256() {
  __m256 sums[kChains];
  for (__m256& sum : sums) sum = _mm256_set1_ps(1.0f);
  __m256 factor = _mm256_set1_ps(0.5f);
  __m256 addend = _mm256_set1_ps(0.25f);
  for (int64_t step = 0; step < kBlockSteps; ++step) {
#pragma GCC unroll 12
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, addend);
    asm volatile("" : "+x"(factor), "+x"(addend));
  }
  for (const __m256& sum : sums) Use(_mm256_castps_si256(sum));
}

__attribute__((target("avx512f"))) void FmaBlock512() {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.0f);
  __m512 factor = _mm512_set1_ps(0.5f);
  __m512 addend = _mm512_set1_ps(0.25f);
  for (int64_t step = 0; step < kBlockSteps; ++step) {
#pragma GCC unroll 12
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, addend);
    asm volatile("" : "+v"(factor), "+v"(addend));
  }
  for (__m512& sum : sums) asm volatile("" : : "v"(sum));
}

void IntegerBlock256() {
  __m256i sums[kChains] = {};
  __m256i weights = _mm256_set1_epi8(3);
  __m256i inputs = _mm256_set1_epi8(-2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t step = 0; step < kBlockSteps; ++step) {
#pragma GCC unroll 12
    for (__m256i& sum : sums) {
      __m256i pairs = _mm256_maddubs_epi16(weights, inputs);
      // The same inputs every time, yet each product is computed.
      asm volatile("" : "+x"(pairs));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    asm volatile("" : "+x"(weights), "+x"(inputs));
  }
  for (const __m256i& sum : sums) Use(sum);
}

__attribute__((target("avx512f,avx512vnni"))) void IntegerBlock512() {
  __m512i sums[kChains];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i weights = _mm512_set1_epi32(0x03030303);
  __m512i inputs = _mm512_set1_epi32(static_cast<int>(0xFEFEFEFEu));
  for (int64_t step = 0; step < kBlockSteps; ++step) {
#pragma GCC unroll 12
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, weights, inputs);
    asm volatile("" : "+v"(weights), "+v"(inputs));
  }
  for (__m512i& sum : sums) asm volatile("" : : "v"(sum));
}

Block FmaBlock() {
  if (__builtin_cpu_supports("avx512f") != 0) return {FmaBlock512, 16};
  return {FmaBlock256, 8};
}

Block IntegerBlock() {
  if (__builtin_cpu_supports("avx512vnni") != 0) return {IntegerBlock512, 64};
  return {IntegerBlock256, 32};
}

}  // namespace

double MeasureReadRate(std::span<const std::byte> memory, ThreadPool& pool) {
  // Pieces that are taken one by one, so that a thread that gets its processor late holds up
  // nobody.
  constexpr int64_t kPieceBytes = int64_t{2} << 20;
  static_assert(kPieceBytes % (kStreams * kStepBytes) == 0);
  const int64_t pieces = static_cast<int64_t>(memory.size()) / kPieceBytes;
  const Clock::time_point start = Clock::now();
  pool.ParallelFor(pieces, 1, [&](int64_t begin, int64_t end, int) {
    ReadBytes(memory.data() + begin * kPieceBytes, (end - begin) * kPieceBytes);
  });
  return static_cast<double>(pieces * kPieceBytes) / SecondsSince(start);
}

double MeasureFmaRate(double seconds, ThreadPool& pool) {
  const Block block = FmaBlock();
  return MeasureRate(seconds, kBlockSteps * kChains * block.lanes, pool, block.run);
}

double MeasureIntegerRate(double seconds, ThreadPool& pool) {
  const Block block = IntegerBlock();
  return MeasureRate(seconds, kBlockSteps * kChains * block.lanes, pool, block.run);
}

}  // namespace minke
