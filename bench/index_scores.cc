// Index scores beside float32 over the same keys, one thread: index_scores [KEYS].
// 64 heads of 128 dimensions against packed FP4 keys, as index_scores() does it, and against the
// same keys as floats, as a float32 product does it without the sum over heads. In turn, medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "bench/peaks.h"
#include "bench/samples.h"
#include "core/tensor.h"
#include "kernels/kernels.h"

namespace minke {
namespace {

constexpr int64_t kHeads = 64;
constexpr int64_t kDim = 128;
constexpr int64_t kKeysDefault = 65536;
constexpr int64_t kKeysMax = int64_t{1} << 22;
constexpr int64_t kProductKeys = 8192;  // of one product, whose results are let go of
constexpr int kRounds = 15;
constexpr double kPeakSeconds = 0.02;

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int Run(int64_t key_count) {
  const Kernels& kernels = FastKernels();
  ThreadPool pool(1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Matrix<float> queries(kHeads, kDim);
  for (int64_t i = 0; i < kHeads * kDim; ++i) queries.data()[i] = normal(random);
  kernels.quantize_q4i(queries.view(), pool);
  std::vector<float> weights(kHeads);
  for (float& weight : weights) weight = normal(random);

  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, kDim);
  std::vector<std::byte> packed(static_cast<size_t>(key_count * row_bytes));
  Matrix<float> keys(key_count, kDim);
  for (int64_t k = 0; k < key_count; ++k) {
    std::byte* row = packed.data() + k * row_bytes;
    for (int64_t i = 0; i < kDim / 2; ++i) row[i] = static_cast<std::byte>(random() & 0xFF);
    for (int64_t i = kDim / 2; i < row_bytes; ++i) {
      row[i] = static_cast<std::byte>(120 + random() % 6);
    }
    DecodeRow(RowFormat::kFp4Group32, {row, static_cast<size_t>(row_bytes)},
              {keys.view().Row(k), static_cast<size_t>(kDim)});
  }
  std::vector<float> scores(static_cast<size_t>(key_count));
  Matrix<float> dots(kHeads, std::min(kProductKeys, key_count));
  const IndexRun run{packed.data(), key_count, scores.data()};

  Samples index;
  Samples floats;
  Samples peak;
  const double work = static_cast<double>(key_count * kHeads * kDim);
  for (int round = 0; round < kRounds; ++round) {
    peak.Add(MeasureFmaRate(kPeakSeconds, pool));
    index.Add(
        work / SecondsOf([&] {
          kernels.index_scores(queries.view(), weights, RowFormat::kFp4Group32, {&run, 1}, true);
        }));
    floats.Add(work / SecondsOf([&] {
                 for (int64_t k = 0; k < key_count; k += kProductKeys) {
                   Weight weight;
                   weight.data = reinterpret_cast<const std::byte*>(keys.view().Row(k));
                   weight.rows = std::min(kProductKeys, key_count - k);
                   weight.cols = kDim;
                   kernels.matmul(queries.view(), weight,
                                  View<float>(dots.data(), kHeads, weight.rows, dots.view().stride),
                                  pool);
                 }
               }));
  }
  std::printf("kernels: %s; %lld keys, 1 thread\n", FastTargetName(),
              static_cast<long long>(key_count));
  std::printf("index scores       %6.1f G multiply-adds/s, %5.1f M keys/s\n", index.Median() / 1e9,
              index.Median() / (kHeads * kDim) / 1e6);
  std::printf("float32 products   %6.1f G multiply-adds/s, ratio %.2f\n", floats.Median() / 1e9,
              index.Median() / floats.Median());
  std::printf("peak of float32    %6.1f G multiply-adds/s, ratio %.2f\n", peak.Median() / 1e9,
              index.Median() / peak.Median());
  return 0;
}

}  // namespace
}  // namespace minke

int main(int argc, char** argv) {
  const long long keys = argc > 1 ? std::atoll(argv[1]) : minke::kKeysDefault;
  if (argc > 2 || keys < 1 || keys > minke::kKeysMax) {
    std::fprintf(stderr, "usage: index_scores [KEYS], 1 to %lld\n",
                 static_cast<long long>(minke::kKeysMax));
    return 2;
  }
  return minke::Run(keys);
}
