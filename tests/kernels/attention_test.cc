// Sparse attention and index scores: SIMD against scalar, and the properties of 0.7.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels/support.h"

namespace minke {
namespace {

struct Case {
  int64_t rows = 1;
  int64_t heads = 1;
  int64_t dim = 64;
  int64_t window_slots = 16;
  int64_t slot_count = 100;
  int empty_in = 6;  // one slot in so many is empty; 1: all are
  RowFormat window = RowFormat::kFp8Group32;
  RowFormat compressed = RowFormat::kFp4Group16;
  bool round = true;
};

// A random cache with the slots that point into it.
struct Cache {
  Cache(const Case& c, std::mt19937& random) : slots(c.rows * c.slot_count, nullptr) {
    for (int64_t i = 0; i < c.rows * c.slot_count; ++i) {
      if (random() % static_cast<uint32_t>(c.empty_in) == 0) continue;
      const RowFormat format = i % c.slot_count < c.window_slots ? c.window : c.compressed;
      TestMatrix row(1, c.dim);
      row.Randomize(random);
      rows.emplace_back(RowBytes(format, c.dim));
      EncodeRow(format, {row.view().Row(0), static_cast<size_t>(c.dim)}, rows.back());
      slots[i] = rows.back().data();
    }
  }
  std::vector<std::vector<std::byte>> rows;
  std::vector<const std::byte*> slots;
};

void CheckAttention(const Case& c) {
  std::mt19937 random(static_cast<uint32_t>(c.rows * 31 + c.heads * 7 + c.slot_count + c.dim));
  const Cache cache(c, random);
  TestMatrix q(c.rows, c.heads * c.dim);
  q.Randomize(random);
  TestMatrix sink(1, c.heads);
  sink.Randomize(random);
  const AttentionLayout layout = {.head_count = c.heads,
                                  .head_dim = c.dim,
                                  .window_slots = c.window_slots,
                                  .window_format = c.window,
                                  .compressed_format = c.compressed,
                                  .round_probabilities = c.round,
                                  .round_output = c.round};
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads, 0);
    TestMatrix expected(c.rows, c.heads * c.dim);
    TestMatrix found(c.rows, c.heads * c.dim, 2, 9);
    const auto run = [&](const Kernels& kernels, View<float> out) {
      kernels.sparse_attention(
          q.view(), View<const std::byte* const>(cache.slots.data(), c.rows, c.slot_count), layout,
          {sink.view().Row(0), static_cast<size_t>(c.heads)}, 0.125f, out, pool);
    };
    run(ReferenceKernels(), expected.view());
    run(FastKernels(), found.view());
    EXPECT_TRUE(SameBits(expected.view(), found.view()))
        << "rows " << c.rows << ", heads " << c.heads << ", dim " << c.dim << ", slots "
        << c.slot_count << ", threads " << threads;
    const bool has_output = c.empty_in > 1 && c.slot_count > 0 && c.rows * c.heads > 0;
    EXPECT_EQ(has_output, AnyNonZero(found.view()));
  }
}

TEST(SparseAttention, EqualsTheReferenceOverSlotCounts) {
  for (const int64_t slot_count : {0, 1, 7, 63, 64, 65, 128, 129, 300}) {
    CheckAttention({.rows = 2, .heads = 3, .slot_count = slot_count});
  }
}

TEST(SparseAttention, EqualsTheReferenceOverHeadsAndRows) {
  for (const int64_t rows : {0, 1, 2, 7}) {
    for (const int64_t heads : {1, 2, 3, 4, 5, 8, 9}) {
      CheckAttention({.rows = rows, .heads = heads, .slot_count = 90});
    }
  }
}

TEST(SparseAttention, EqualsTheReferenceOverDimensions) {
  for (const int64_t dim : {32, 96, 512}) {
    CheckAttention({.rows = 2, .heads = 5, .dim = dim, .slot_count = 130});
  }
  for (const int64_t dim : {1, 7, 8, 9, 17, 25}) {
    CheckAttention({.heads = 5,
                    .dim = dim,
                    .window = RowFormat::kF32,
                    .compressed = RowFormat::kF32,
                    .round = false});
  }
  CheckAttention({.heads = 4, .dim = 48, .window_slots = 0});  // 16 but not 32 divides the row
}

TEST(SparseAttention, EqualsTheReferenceAtReleasedSizes) {
  CheckAttention(
      {.rows = 1, .heads = 64, .dim = 512, .window_slots = 128, .slot_count = 640, .empty_in = 9});
}

TEST(SparseAttention, ARowWithoutSlotsIsExactlyZero) {
  CheckAttention({.rows = 3, .heads = 4, .slot_count = 200, .empty_in = 1});
}

// Whole empty blocks, also leading ones, change nothing: the same slots without them agree.
TEST(SparseAttention, EmptyBlocksChangeNothing) {
  std::mt19937 random(3);
  const Case c = {.heads = 3, .window_slots = 0, .slot_count = 64, .empty_in = 1000000};
  const Cache cache(c, random);
  std::vector<const std::byte*> padded(64 * 3, nullptr);
  std::copy(cache.slots.begin(), cache.slots.end(), padded.begin() + 64);
  TestMatrix q(1, 3 * 64);
  q.Randomize(random);
  const std::vector<float> sink = {0.5f, -1.0f, 2.0f};
  const AttentionLayout layout = {.head_count = 3, .head_dim = 64};
  ThreadPool pool(1);
  for (const Kernels* kernels : {&ReferenceKernels(), &FastKernels()}) {
    TestMatrix plain(1, 3 * 64);
    TestMatrix with_gaps(1, 3 * 64);
    kernels->sparse_attention(q.view(), View<const std::byte* const>(cache.slots.data(), 1, 64),
                              layout, sink, 0.125f, plain.view(), pool);
    kernels->sparse_attention(q.view(), View<const std::byte* const>(padded.data(), 1, 192), layout,
                              sink, 0.125f, with_gaps.view(), pool);
    ASSERT_TRUE(AnyNonZero(plain.view()));
    EXPECT_TRUE(SameBits(plain.view(), with_gaps.view()));
  }
}

TEST(IndexScores, EqualTheReference) {
  std::mt19937 random(4);
  ThreadPool pool(1);
  for (const RowFormat format : {RowFormat::kFp4Group32, RowFormat::kF32}) {
    for (const int64_t heads : {0, 1, 3, 4, 32}) {
      for (const int64_t row_count : {0, 1, 7, 63, 64, 65, 200}) {
        const int64_t dim = 128;
        TestMatrix keys(row_count, dim, 0, 0);
        keys.Randomize(random);
        const int64_t row_bytes = RowBytes(format, dim);
        std::vector<std::byte> packed(row_count * row_bytes);
        for (int64_t j = 0; j < row_count; ++j) {
          EncodeRow(format, {keys.view().Row(j), static_cast<size_t>(dim)},
                    {packed.data() + j * row_bytes, static_cast<size_t>(row_bytes)});
        }
        TestMatrix queries(heads, dim);
        queries.Randomize(random);
        // As in the model, but for some that are on no grid.
        if (row_count != 65) ReferenceKernels().quantize_q4i(queries.view(), pool);
        TestMatrix weights(1, heads);
        weights.Randomize(random);
        for (const bool round : {false, true}) {
          TestMatrix expected(1, row_count);
          TestMatrix found(1, row_count);
          const auto run = [&](const Kernels& kernels, View<float> out) {
            const int64_t half = row_count / 2;
            const std::array<IndexRun, 2> runs = {
                IndexRun{packed.data(), half, out.Row(0)},
                IndexRun{packed.data() + half * row_bytes, row_count - half, out.Row(0) + half}};
            kernels.index_scores(queries.view(),
                                 {weights.view().Row(0), static_cast<size_t>(heads)}, format, runs,
                                 round);
          };
          run(ReferenceKernels(), expected.view());
          run(FastKernels(), found.view());
          EXPECT_TRUE(SameBits(expected.view(), found.view())) << heads << " " << row_count;
          EXPECT_EQ(heads >= 3 && row_count > 0, heads >= 3 && AnyNonZero(found.view()));
        }
      }
    }
  }
}

// Scales that differ more than the integers can hold, that are NaN, or far from one.
TEST(IndexScores, EveryScaleEqualsTheReference) {
  constexpr int64_t kDim = 128;
  constexpr int64_t kRows = 256;
  std::mt19937 random(5);
  ThreadPool pool(1);
  const int64_t row_bytes = RowBytes(RowFormat::kFp4Group32, kDim);
  std::vector<std::byte> packed(kRows * row_bytes);
  for (std::byte& byte : packed) byte = static_cast<std::byte>(random() & 0xFF);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t group = 0; group < kDim / 32; ++group) {
      const bool near = row % 2 == 0 && group > 0;  // to one of which the row has all codes
      packed[row * row_bytes + kDim / 2 + group] =
          static_cast<std::byte>(near ? 120 + random() % 16 : row);
    }
  }
  for (const float factor : {1.0f, 0x1p-110f, 0x1p90f}) {
    TestMatrix queries(3, kDim);
    queries.Randomize(random);
    ReferenceKernels().quantize_q4i(queries.view(), pool);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < kDim; ++i) queries.view().Row(r)[i] *= factor;
    }
    const std::vector<float> weights = {1.0f, -0.5f, 0.25f};
    TestMatrix expected(1, kRows);
    TestMatrix found(1, kRows);
    const auto run = [&](const Kernels& kernels, View<float> out) {
      const IndexRun rows{packed.data(), kRows, out.Row(0)};
      kernels.index_scores(queries.view(), weights, RowFormat::kFp4Group32, {&rows, 1}, true);
    };
    run(ReferenceKernels(), expected.view());
    run(FastKernels(), found.view());
    EXPECT_TRUE(SameBits(expected.view(), found.view())) << factor;
  }
}

}  // namespace
}  // namespace minke
