#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <type_traits>

namespace minke {
namespace {

bool IsAligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % kAlignmentBytes == 0;
}

TEST(View, SelectsRowsAndColumns) {
  float values[12];
  for (int i = 0; i < 12; ++i) values[i] = static_cast<float>(i);
  const View<float> all(values, 3, 4);
  EXPECT_EQ(all.Row(2)[1], 9.0f);
  const View<float> rows = all.Rows(1, 2);
  EXPECT_EQ(rows.rows, 2);
  EXPECT_EQ(rows.Row(0)[0], 4.0f);
  const View<float> cols = all.Cols(1, 2);
  EXPECT_EQ(cols.cols, 2);
  EXPECT_EQ(cols.stride, 4);
  EXPECT_EQ(cols.Row(1)[0], 5.0f);
  // Columns of rows: the stride stays that of the whole.
  EXPECT_EQ(all.Rows(1, 2).Cols(3, 1).Row(1)[0], 11.0f);
}

TEST(View, BecomesConstButNeverTheReverse) {
  static_assert(std::is_convertible_v<View<float>, View<const float>>);
  static_assert(!std::is_convertible_v<View<const float>, View<float>>);
  float value = 3;
  const View<const float> view = View<float>(&value, 1, 1);
  EXPECT_EQ(view.Row(0)[0], 3.0f);
}

TEST(Matrix, StartsAsZerosAndAligned) {
  for (const int64_t cols : {1, 7, 16, 33}) {
    Matrix<float> matrix(5, cols);
    EXPECT_TRUE(IsAligned(matrix.data()));
    for (int64_t i = 0; i < 5 * cols; ++i) EXPECT_EQ(matrix.data()[i], 0.0f);
    matrix.view().Row(4)[cols - 1] = 2;
    EXPECT_EQ(matrix.data()[5 * cols - 1], 2.0f);
  }
  EXPECT_EQ(Matrix<float>(0, 8).rows(), 0);
}

TEST(Arena, AllocationsAreAlignedAndApart) {
  Arena arena;
  const ArenaScope scope(arena);
  View<float> first = arena.Allocate<float>(3, 5);
  View<float> second = arena.Allocate<float>(1, 1);
  EXPECT_TRUE(IsAligned(first.data));
  EXPECT_TRUE(IsAligned(second.data));
  std::fill_n(first.data, 15, 1.0f);
  std::fill_n(second.data, 1, 2.0f);
  EXPECT_EQ(first.Row(2)[4], 1.0f);
  EXPECT_EQ(arena.AllocateSpan<int32_t>(9).size(), 9u);
}

TEST(Arena, ScopesGiveBackWhatTheyTook) {
  Arena arena;
  const ArenaScope outer(arena);
  float* kept = arena.Allocate<float>(1, 100).data;
  std::fill_n(kept, 100, 7.0f);
  float* inner_data = nullptr;
  {
    const ArenaScope inner(arena);
    inner_data = arena.Allocate<float>(1, 50).data;
    std::fill_n(inner_data, 50, 8.0f);
  }
  EXPECT_EQ(arena.Allocate<float>(1, 50).data, inner_data);
  EXPECT_EQ(kept[99], 7.0f);
}

TEST(Arena, AWarmStepAllocatesNothing) {
  Arena arena;
  const auto step = [&arena] {
    const ArenaScope scope(arena);
    // Larger and smaller than a block, so that several blocks take part.
    for (const int64_t count : {1'000, 400'000, 10, 900'000, 70'000}) {
      View<float> values = arena.Allocate<float>(1, count);
      values.data[0] = 1;
      values.data[count - 1] = 2;
    }
  };
  step();
  const size_t capacity = arena.capacity_bytes();
  EXPECT_GT(capacity, 0u);
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(arena.capacity_bytes(), capacity);
}

}  // namespace
}  // namespace minke
