// The proof at start finds a kernel whose bits differ.
#include "kernels/self_check.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"

namespace minke {
namespace {

void NextBit(float& value) {
  value = std::nextafter(value, 2.0f * value + 1.0f);
}

TEST(SelfCheck, TheTablesAreTheSame) {
  EXPECT_EQ(FirstDifference(ReferenceKernels()), nullptr);
  EXPECT_EQ(FirstDifference(FastKernels()), nullptr);
  EXPECT_EQ(FastKernelsDifference(), nullptr);
}

TEST(SelfCheck, ABitThatDiffersIsFound) {
  Kernels wrong = FastKernels();
  wrong.matmul = [](View<const float> x, const Weight& w, View<float> y, ThreadPool& pool) {
    ReferenceKernels().matmul(x, w, y, pool);
    if (w.format == WeightFormat::kFp4Group32 && x.rows > 8) NextBit(y.Row(y.rows - 1)[0]);
  };
  EXPECT_STREQ(FirstDifference(wrong), "matmul");
  wrong = FastKernels();
  wrong.rope = [](View<float> x, int64_t head_dim, std::span<const int64_t> positions,
                  const RopeTable& table, bool inverse, bool round_bf16, ThreadPool& pool) {
    ReferenceKernels().rope(x, head_dim, positions, table, inverse, round_bf16, pool);
    NextBit(x.Row(4)[31]);
  };
  EXPECT_STREQ(FirstDifference(wrong), "rope");
  wrong = FastKernels();
  wrong.index_scores = [](View<const float> queries, std::span<const float> head_weights,
                          RowFormat key_format, std::span<const IndexRun> runs, bool round_bf16) {
    ReferenceKernels().index_scores(queries, head_weights, key_format, runs, round_bf16);
    NextBit(runs[0].scores[runs[0].row_count - 1]);
  };
  EXPECT_STREQ(FirstDifference(wrong), "index_scores");
  wrong = FastKernels();
  wrong.sparse_attention = [](View<const float> q, View<const std::byte* const> slots,
                              const AttentionLayout& layout, std::span<const float> sink,
                              float scale, View<float> out, ThreadPool& pool) {
    ReferenceKernels().sparse_attention(q, slots, layout, sink, scale, out, pool);
    NextBit(out.Row(0)[5]);
  };
  EXPECT_STREQ(FirstDifference(wrong), "sparse_attention");
}

}  // namespace
}  // namespace minke
