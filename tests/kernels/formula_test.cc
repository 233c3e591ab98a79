// Small cases worked out by hand from architecture.md, for the kernels whose twins could agree on
// a mistake and that no golden set calls alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/support.h"

namespace minke {
namespace {

class Formula : public ::testing::TestWithParam<const char*> {
 protected:
  const Kernels& kernels() const {
    return std::string(GetParam()) == "fast" ? FastKernels() : ReferenceKernels();
  }
  ThreadPool pool_{1};
};

View<float> RowOf(std::vector<float>& values) {
  return View<float>(values.data(), 1, static_cast<int64_t>(values.size()));
}

// comb is summed over its first index, the source stream (architecture.md 3.3). Eight channels
// and four streams, so that the SIMD version runs.
TEST_P(Formula, ExpandSumsOverSourceStreams) {
  constexpr int kD = 8;
  std::vector<float> streams(4 * kD);
  std::vector<float> y(kD);
  for (int i = 0; i < kD; ++i) {
    for (int j = 0; j < 4; ++j) streams[j * kD + i] = static_cast<float>((j == 0 ? 1 : 10 * j) + i);
    y[i] = static_cast<float>(3 + i);
  }
  const std::vector<float> before = streams;
  std::vector<float> post = {0.5f, 2.0f, -1.0f, 0.25f};
  std::vector<float> comb(16);
  for (int j = 0; j < 4; ++j) {
    for (int k = 0; k < 4; ++k) comb[j * 4 + k] = static_cast<float>(j + 1) * 0.5f - k;
  }
  kernels().hc_expand(RowOf(y), RowOf(post), RowOf(comb), false, RowOf(streams), pool_);
  for (int k = 0; k < 4; ++k) {
    for (int i = 0; i < kD; ++i) {
      float expected = post[k] * y[i];
      for (int j = 0; j < 4; ++j) expected += comb[j * 4 + k] * before[j * kD + i];
      EXPECT_EQ(expected, streams[k * kD + i]) << k << " " << i;
    }
  }
}

// comb of architecture.md 3.2 after `iterations`, in float64.
std::vector<double> Sinkhorn(std::vector<double> z, int iterations) {
  for (int j = 0; j < 4; ++j) {
    double sum = 0;
    for (int k = 0; k < 4; ++k) sum += std::exp(z[j * 4 + k]);
    for (int k = 0; k < 4; ++k) z[j * 4 + k] = std::exp(z[j * 4 + k]) / sum + 1e-6;
  }
  for (int step = 1; step < 2 * iterations; ++step) {  // odd steps: columns; the first was rows
    for (int line = 0; line < 4; ++line) {
      double sum = 1e-6;
      for (int i = 0; i < 4; ++i) sum += step % 2 == 1 ? z[i * 4 + line] : z[line * 4 + i];
      for (int i = 0; i < 4; ++i) (step % 2 == 1 ? z[i * 4 + line] : z[line * 4 + i]) /= sum;
    }
  }
  return z;
}

// Next to a triangular matrix, which has no doubly stochastic scaling, the normalisation converges
// so slowly that one iteration more or less shows.
TEST_P(Formula, SinkhornRunsTwentyIterations) {
  std::vector<double> z = {0, 0, 0, 0, -12, 0, 0, 0, -12, -12, 0, 0, -12, -12, -12, 0};
  constexpr int kCols = 8;
  std::vector<float> ones(kCols, 1.0f);  // r = 1, so that m is the first column of fn
  std::vector<float> fn(24 * kCols, 0.0f);
  for (int i = 0; i < 16; ++i) fn[(8 + i) * kCols] = static_cast<float>(z[i]);
  const Weight weight = {.format = WeightFormat::kF32,
                         .data = reinterpret_cast<const std::byte*>(fn.data()),
                         .rows = 24,
                         .cols = kCols};
  const std::vector<float> base(24, 0.0f);
  const std::vector<float> scale(3, 1.0f);
  std::vector<float> pre(4);
  std::vector<float> post(4);
  std::vector<float> comb(16);
  kernels().hc_mix(RowOf(ones), weight, base, scale, 20, 1e-20f, 1e-6f, RowOf(pre), RowOf(post),
                   RowOf(comb), pool_);
  const auto distance = [&](int iterations) {
    const std::vector<double> expected = Sinkhorn(z, iterations);
    double largest = 0;
    for (int i = 0; i < 16; ++i) largest = std::max(largest, std::fabs(expected[i] - comb[i]));
    return largest;
  };
  EXPECT_LT(distance(20), 40 * 0x1p-24);  // forty divisions in float32
  EXPECT_GT(distance(19), 1e-4);
  EXPECT_GT(distance(21), 1e-4);
}

TEST_P(Formula, CollapseWeighsStreams) {
  std::vector<float> streams = {1, 2, 10, 20};  // two streams of two channels
  std::vector<float> pre = {2, -1};
  std::vector<float> u(2);
  kernels().hc_collapse(RowOf(streams), RowOf(pre), false, RowOf(u), pool_);
  EXPECT_EQ((std::vector<float>{-8, -16}), u);
}

// One bf16 rounding at the end: 1 + 2^-8 is a tie and goes down, plus 2^-20 it goes up.
TEST_P(Formula, CollapseRoundsTheSumOnce) {
  std::vector<float> streams = {1.00390625f, 0x1p-20f};
  std::vector<float> pre = {1, 1};
  std::vector<float> u(1);
  kernels().hc_collapse(RowOf(streams), RowOf(pre), true, RowOf(u), pool_);
  EXPECT_EQ(1.0078125f, u[0]);
}

TEST_P(Formula, NormDividesByTheRootMeanSquare) {
  std::vector<float> x = {3, 4, 0, 0, 0, 0, 0, 0};
  std::vector<float> y(8);
  const std::vector<uint16_t> weight(8, EncodeBf16(2.0f));
  kernels().rms_norm(RowOf(x), weight, 0.0f, false, RowOf(y), pool_);
  EXPECT_NEAR(6 / std::sqrt(25.0 / 8), y[0], 1e-6);
  EXPECT_NEAR(8 / std::sqrt(25.0 / 8), y[1], 1e-6);
  x = {1e-12f, 0, 0, 0, 0, 0, 0, 0};  // the epsilon counts where the mean is as small
  kernels().rms_norm(RowOf(x), weight, 1e-20f, false, RowOf(y), pool_);
  EXPECT_NEAR(2e-12 / std::sqrt(1e-24 / 8 + 1e-20), y[0], 1e-8);
}

// The dot, each weighted term and the sum are rounded to bf16; negative dots count as zero.
TEST_P(Formula, IndexScoresRoundThreeTimes) {
  std::vector<float> key(8, 0.0f);
  key[0] = 1.0f;
  std::vector<float> queries(3 * 8, 0.0f);
  queries[0] = 1.00390625f;  // a tie of bf16: down to 1
  queries[8] = -7.0f;
  queries[16] = 3.0f;
  const std::vector<float> weights = {1.0f, 5.0f, -0.3359375f};  // 3 w = -1.0078125
  const auto* bytes = reinterpret_cast<const std::byte*>(key.data());
  std::vector<float> scores(1);
  const IndexRun run{bytes, 1, scores.data()};
  const View<const float> view(queries.data(), 3, 8);
  kernels().index_scores(view, weights, RowFormat::kF32, {&run, 1}, false);
  EXPECT_EQ(1.00390625f - 1.0078125f, scores[0]);
  kernels().index_scores(view, weights, RowFormat::kF32, {&run, 1}, true);
  EXPECT_EQ(1.0f - 1.0078125f, scores[0]);
}

// Experts are added in the order given, in float32, the shared one last.
TEST_P(Formula, CombineAddsInOrder) {
  std::vector<float> routed = {1e8f, 1.0f, -1e8f};
  const View<const float> view(routed.data(), 3, 1);
  const std::vector<float> shared = {0.5f};
  std::vector<float> y(1);
  kernels().moe_combine(view, std::vector<int32_t>{0, 1, 2}, shared, false, y);
  EXPECT_EQ(0.5f, y[0]);
  kernels().moe_combine(view, std::vector<int32_t>{0, 2, 1}, shared, false, y);
  EXPECT_EQ(1.5f, y[0]);
}

// Two rows of one channel pair: exp, sink and values as in architecture.md 0.7.
TEST_P(Formula, AttentionWithSink) {
  const std::vector<float> first = {1, 2};
  const std::vector<float> second = {3, -1};
  const std::vector<const std::byte*> slots = {reinterpret_cast<const std::byte*>(first.data()),
                                               nullptr,
                                               reinterpret_cast<const std::byte*>(second.data())};
  std::vector<float> q = {0.5f, 0.25f};
  std::vector<float> out(2);
  const std::vector<float> sink = {0.75f};
  const AttentionLayout layout = {.head_count = 1,
                                  .head_dim = 2,
                                  .window_slots = 3,
                                  .window_format = RowFormat::kF32,
                                  .round_probabilities = false,
                                  .round_output = false};
  kernels().sparse_attention(RowOf(q), View<const std::byte* const>(slots.data(), 1, 3), layout,
                             sink, 2.0f, RowOf(out), pool_);
  const double a = std::exp(2.0 * (0.5 * 1 + 0.25 * 2));
  const double b = std::exp(2.0 * (0.5 * 3 - 0.25 * 1));
  const double denominator = a + b + std::exp(0.75);
  EXPECT_NEAR((a * 1 + b * 3) / denominator, out[0], 1e-6);
  EXPECT_NEAR((a * 2 - b * 1) / denominator, out[1], 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Tables, Formula, ::testing::Values("reference", "fast"), TableName);

}  // namespace
}  // namespace minke
