// The packed state: bytes per token, growth by blocks, accounting.
#include <cstring>

#include <gtest/gtest.h>

#include "tests/model/golden_model.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

ModelConfig ReleasedConfig() {
  auto config = LoadConfig(GoldenPath("released/config.json"));
  CHECK(config.has_value(), config.error().message);
  return *config;
}

// A state of the released sizes with a pool of its own.
struct ReleasedState {
  BlockPool pool{StateLayout(ReleasedConfig(), Numerics::Official()).block_bytes, int64_t{1} << 30};
  SequenceState state{ReleasedConfig(), Numerics::Official(), pool};
};

TEST(StateLayout, ReleasedSizes) {
  const StateLayout layout(ReleasedConfig(), Numerics::Official());
  EXPECT_EQ(layout.compressed_row_bytes, 288);
  EXPECT_EQ(layout.index_row_bytes, 68);
  EXPECT_EQ(layout.window_row_bytes, 528);
  EXPECT_EQ(KvBytesPerToken(layout), 890.0);
  EXPECT_EQ(WindowStateBytes(layout), 2'703'360);
  EXPECT_EQ(layout.block_bytes, 890 * kBlockTokens);
}

TEST(SequenceState, FourThousandTokensTakeExactlyTheConfigsBytes) {
  const auto model = LoadGoldenModel("full_mini", Numerics::Official(), FastKernels());
  const std::vector<int32_t> prompt = GoldenPrompt("full_mini");
  std::vector<int32_t> tokens;
  const size_t count = kSanitized ? 1000 : 4000;
  while (tokens.size() < count) tokens.push_back(prompt[tokens.size() % prompt.size()]);
  auto state = model->NewSequence();
  ThreadPool pool(2);
  Arena arena;
  Matrix<float> logits(0, model->config().vocab_size);
  for (size_t begin = 0; begin < tokens.size(); begin += 250) {
    const ForwardRows call{.state = state.get(),
                           .tokens = std::span<const int32_t>(tokens).subspan(begin, 250),
                           .logits_from = 250};
    ASSERT_TRUE(model->Forward({&call, 1}, logits.view(), pool, arena).has_value());
    state->Commit(250);
  }
  // full_mini: two ratio-2 sources and one ratio-1 source of 64 + 64 channels.
  const double per_token = 2 * (36.0 + 34.0) / 2 + (36.0 + 34.0);
  EXPECT_EQ(KvBytesPerToken(state->layout()), per_token);
  EXPECT_EQ(state->used_bytes(), static_cast<int64_t>(per_token * static_cast<double>(count)));
  EXPECT_GE(state->capacity_bytes(), state->used_bytes());
  EXPECT_LE(state->capacity_bytes(), state->used_bytes() + state->layout().block_bytes);
}

TEST(SequenceState, GrowthNeverMovesARow) {
  ReleasedState released;
  SequenceState& state = released.state;
  ASSERT_TRUE(state.Begin(1));
  const std::byte* first = state.CompressedRow(3, 0);
  std::memset(state.CompressedRow(3, 0), 0x5a, 288);
  state.Commit(1);
  ASSERT_TRUE(state.Begin(1000));
  EXPECT_EQ(state.CompressedRow(3, 0), first);
  EXPECT_EQ(state.CompressedRow(3, 0)[287], std::byte{0x5a});
  state.Commit(3);
  EXPECT_EQ(state.length(), 4);
  EXPECT_EQ(state.capacity_bytes(), state.layout().block_bytes);  // the rejected rows' blocks went
}

TEST(SequenceState, OpenGroupWaitsForItsSecondToken) {
  ReleasedState released;
  SequenceState& state = released.state;
  ASSERT_TRUE(state.Begin(3));
  for (int64_t row = 0; row < 3; ++row) state.PendingKv(0).Row(row)[0] = static_cast<float>(row);
  state.Commit(3);
  EXPECT_EQ(state.open_tokens(0), 1);
  ASSERT_TRUE(state.Begin(1));
  EXPECT_EQ(state.PendingKv(0).rows, 2);
  EXPECT_EQ(state.PendingKv(0).Row(0)[0], 2.0f);
  state.Commit(0);  // rejected: the open token is still the same
  ASSERT_TRUE(state.Begin(1));
  EXPECT_EQ(state.PendingKv(0).Row(0)[0], 2.0f);
  state.Commit(1);
  EXPECT_EQ(state.open_tokens(0), 0);
}

TEST(SequenceState, HistoryCrossesCalls) {
  ReleasedState released;
  SequenceState& state = released.state;
  ASSERT_TRUE(state.Begin(2));
  EXPECT_EQ(state.PendingHistory()[0], kDeadHistory);
  state.PendingHistory()[3] = 11;
  state.PendingHistory()[4] = 12;
  state.Commit(1);
  ASSERT_TRUE(state.Begin(1));
  EXPECT_EQ(state.PendingHistory()[2], 11);
  EXPECT_EQ(state.PendingHistory()[1], kDeadHistory);
}

}  // namespace
}  // namespace minke::testing
