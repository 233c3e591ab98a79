// Bounded replay (architecture.md 6): prefill that leaves the decoder out for all but the last
// window, and the way back from rows alone.
#include <gtest/gtest.h>

#include "tests/model/cache_runs.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

class Replay : public ::testing::TestWithParam<const char*> {
 protected:
  Replay() : bench_(GetParam()) {}
  // Every length on the small model; an odd step, which meets odd and even ones, where a token
  // costs more.
  int64_t Step() const {
    const bool dear = bench_.window() > 32;
    return kSanitized ? (dear ? 129 : 43) : dear ? 9 : 1;
  }
  int64_t count() const { return static_cast<int64_t>(bench_.tokens().size()); }
  std::span<const int32_t> First(int64_t n) const {
    return std::span(bench_.tokens()).first(static_cast<size_t>(n));
  }
  // Rows of `source` in bytes, both kinds.
  std::vector<std::byte> Rows(const SequenceState& state, int64_t source, int64_t end) const {
    std::vector<std::byte> bytes;
    for (int64_t row = 0; row < end; ++row) {
      const std::byte* compressed = state.CompressedRow(source, row);
      bytes.insert(bytes.end(), compressed, compressed + bench_.layout().compressed_row_bytes);
      const std::byte* index = state.IndexRow(source, row);
      bytes.insert(bytes.end(), index, index + bench_.layout().index_row_bytes);
    }
    return bytes;
  }
  std::vector<std::byte> AllRows(const SequenceState& state, int64_t tokens) const {
    std::vector<std::byte> bytes;
    for (size_t source = 0; source < bench_.layout().ratios.size(); ++source) {
      const auto part = Rows(state, static_cast<int64_t>(source),
                             state.RowCount(static_cast<int64_t>(source), tokens));
      bytes.insert(bytes.end(), part.begin(), part.end());
    }
    return bytes;
  }

  CacheBench bench_;
};

// A prompt no longer than the window has nothing to leave out.
TEST_P(Replay, APromptWithinTheWindowIsExact) {
  const int64_t n = std::min(bench_.window(), count());
  auto exact = bench_.model().NewSequence();
  auto replay = bench_.model().NewSequence();
  const Matrix<float> a = bench_.Run(*exact, bench_.tokens(), n);
  const Matrix<float> b = bench_.Run(*replay, bench_.tokens(), n, 1 << 20, n - bench_.window());
  EXPECT_TRUE(SameBits(a.view(), b.view()));
}

TEST_P(Replay, AnyChunkingIsOnePassAndGlobalRowsAreTheExactOnes) {
  // Over a block's border and beyond the window, in few tokens where a sanitizer runs.
  const int64_t n = std::min(count(), kSanitized ? std::max(kBlockTokens, bench_.window()) + 33
                                                 : kBlockTokens + 2 * bench_.window() + 1);
  const int64_t from = n - bench_.window();
  auto exact = bench_.model().NewSequence();
  const Matrix<float> exact_logits = bench_.Run(*exact, bench_.tokens(), n);
  auto once = bench_.model().NewSequence();
  const Matrix<float> logits = bench_.Run(*once, bench_.tokens(), n, 1 << 20, from);
  ASSERT_EQ(logits.rows(), bench_.window());
  EXPECT_EQ(AllRows(*once, n), AllRows(*exact, n));
  // Something was left out, or the test compares nothing.
  EXPECT_FALSE(
      SameBits(logits.view(), std::as_const(exact_logits).view().Rows(from, logits.rows())));
  EXPECT_EQ(once->window_begin(bench_.layout().layer_count - 1), from);
  const std::vector<std::byte> snapshot = CacheBench::Snapshot(*once);
  for (const int64_t chunk : Values({1, 7, 64, 100}, {7, 100})) {
    auto state = bench_.model().NewSequence();
    const Matrix<float> again = bench_.Run(*state, bench_.tokens(), n, chunk, from);
    EXPECT_TRUE(SameBits(again.view(), logits.view())) << "chunk " << chunk;
    EXPECT_EQ(CacheBench::Snapshot(*state), snapshot) << "chunk " << chunk;
  }
}

TEST_P(Replay, SkippingRowsInABatchIsAsAlone) {
  const int64_t n = std::min<int64_t>(count(), 3 * bench_.window());
  auto alone = bench_.model().NewSequence();
  const Matrix<float> logits = bench_.Run(*alone, bench_.tokens(), n, 1 << 20, n - bench_.window());
  auto first = bench_.model().NewSequence();
  auto none = bench_.model().NewSequence();
  auto exact = bench_.model().NewSequence();
  const int64_t skipped = n - bench_.window();
  const std::vector<ForwardRows> calls = {
      {.state = none.get(), .tokens = First(9), .logits_from = 9, .decoder_from = 9},
      {.state = first.get(), .tokens = First(n), .logits_from = skipped, .decoder_from = skipped},
      {.state = exact.get(), .tokens = First(12), .logits_from = 11}};
  Matrix<float> all(bench_.window() + 1, bench_.model().config().vocab_size);
  ThreadPool threads(2);
  Arena arena;
  ASSERT_TRUE(bench_.model().Forward(calls, all.view(), threads, arena).has_value());
  EXPECT_TRUE(SameBits(std::as_const(all).view().Rows(0, bench_.window()), logits.view()));
  auto other = bench_.model().NewSequence();
  const Matrix<float> last = bench_.Run(*other, bench_.tokens(), 12);
  EXPECT_TRUE(
      SameBits(std::as_const(all).view().Rows(bench_.window(), 1), last.view().Rows(11, 1)));
}

// After rows alone came back, the windows are those of a run that has everything else but sees no
// window row before the replay starts; and adopted rows stay as they are.
TEST_P(Replay, EveryLengthGivesTheTruncatedRun) {
  const int64_t window = bench_.window();
  auto cold = bench_.model().NewSequence();
  auto at_from = bench_.model().NewSequence();
  const int64_t longest =
      std::min(count() - kContinued, std::max(2 * window + 3, kBlockTokens + 3));
  for (int64_t length = 1; length <= longest; length += Step()) {
    const int64_t from = std::max<int64_t>(0, length - window);
    bench_.Run(*cold, bench_.tokens(), length);
    const std::vector<std::byte> rows_before = AllRows(*cold, length);
    auto replay = bench_.model().NewSequence();
    ASSERT_TRUE(replay->RestoreRows(CacheBench::Snapshot(*cold), CacheBench::FullBlocks(*cold)));
    EXPECT_EQ(replay->known_tokens(), length);
    replay->StartReplay(from, bench_.model().EngramHistory(First(from)));
    bench_.Run(*replay, bench_.tokens(), length, 19);

    // The truncated run: the real open group and history at `from`, no window rows.
    bench_.Run(*at_from, bench_.tokens(), from);
    auto truncated = bench_.model().NewSequence();
    ASSERT_TRUE(truncated->RestoreRows(CacheBench::Snapshot(*cold), CacheBench::FullBlocks(*cold)));
    std::vector<int32_t> history(at_from->PendingHistory().begin(),
                                 at_from->PendingHistory().end());
    truncated->StartReplay(from, history);
    for (size_t source = 0; source < bench_.layout().ratios.size(); ++source) {
      const auto index = static_cast<int64_t>(source);
      if (bench_.layout().ratios[source] == 1 || at_from->open_tokens(index) == 0) continue;
      const View<float> kv = at_from->PendingKv(index);
      const View<float> gate = at_from->PendingGate(index);
      std::copy_n(kv.data, kv.rows * kv.cols, truncated->PendingKv(index).data);
      std::copy_n(gate.data, gate.rows * gate.cols, truncated->PendingGate(index).data);
    }
    bench_.Run(*truncated, bench_.tokens(), length, 1);

    EXPECT_EQ(CacheBench::Snapshot(*replay), CacheBench::Snapshot(*truncated)) << length;
    EXPECT_EQ(AllRows(*replay, length), rows_before) << length;
    const Matrix<float> a = bench_.Run(*replay, bench_.tokens(), length + kContinued);
    const Matrix<float> b = bench_.Run(*truncated, bench_.tokens(), length + kContinued, 2);
    EXPECT_TRUE(SameBits(a.view(), b.view())) << length;
    if (length <= window) {
      auto exact = bench_.model().NewSequence();
      bench_.Run(*exact, bench_.tokens(), length);
      const Matrix<float> c = bench_.Run(*exact, bench_.tokens(), length + kContinued);
      EXPECT_TRUE(SameBits(a.view(), c.view())) << "a replay of everything is exact: " << length;
    }
  }
}

// A restored snapshot goes on as if the conversation had never left memory, here with the decoder
// left out for most of both turns.
TEST_P(Replay, ASnapshotIsTheConversationThatNeverLeft) {
  const int64_t window = bench_.window();
  const int64_t first = std::min(count() / 2, 2 * window + 1);
  for (const int64_t second : Values({first + 3, first + window, first + window + 1, count()},
                                     {first + 3, first + window + 1})) {
    if (second > count()) continue;
    const int64_t from = second - window;
    auto stayed = bench_.model().NewSequence();
    bench_.Run(*stayed, bench_.tokens(), first, 1 << 20, first - window);
    auto restored = bench_.Restore(CacheBench::Snapshot(*stayed), CacheBench::FullBlocks(*stayed));
    const int64_t decoder = from <= first ? 0 : from;
    const Matrix<float> a = bench_.Run(*stayed, bench_.tokens(), second, 1 << 20, decoder);
    const Matrix<float> b = bench_.Run(*restored, bench_.tokens(), second, 13, decoder);
    EXPECT_TRUE(SameBits(a.view(), b.view())) << second;
    EXPECT_EQ(CacheBench::Snapshot(*stayed), CacheBench::Snapshot(*restored));
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Replay, ::testing::Values("full_mini", "wide"));

TEST(ReplayModels, AModelWithoutCompressedRowsSaysWhyItCannot) {
  const auto model = LoadGoldenModel("tiny_swa", Numerics::Official(), FastKernels());
  EXPECT_NE(model->replay_obstacle().find("no layer with compressed rows"), std::string::npos);
  EXPECT_EQ(LoadGoldenModel("full_mini", Numerics::Official(), FastKernels())->replay_obstacle(),
            "");
}

}  // namespace
}  // namespace minke::testing
