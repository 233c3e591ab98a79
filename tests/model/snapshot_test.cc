// Snapshots and forks: whatever way a sequence comes back, its logits are those of the run that
// never stopped, bit for bit.
#include <gtest/gtest.h>

#include "tests/model/cache_runs.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

class Snapshots : public ::testing::TestWithParam<const char*> {
 protected:
  Snapshots()
      : bench_(GetParam()),
        whole_(RunTokens(
            bench_.model(),
            std::span(bench_.tokens()).first(static_cast<size_t>(Longest() + kContinued)))) {}
  // Every length from 1 to twice the window and over a block's border, odd and even.
  int64_t Longest() const {
    const auto count = static_cast<int64_t>(bench_.tokens().size());
    return std::min(count - kContinued, std::max(2 * bench_.window() + 3, kBlockTokens + 3));
  }
  // Under sanitizers an odd step, which meets odd and even ones.
  int64_t Step() const { return kSanitized ? 23 : 1; }
  bool Continues(SequenceState& state) {
    const int64_t from = state.length();
    const Matrix<float> logits = bench_.Run(state, bench_.tokens(), from + kContinued);
    return SameBits(logits.view(), std::as_const(whole_).view().Rows(from, kContinued));
  }

  CacheBench bench_;
  Matrix<float> whole_;
};

TEST_P(Snapshots, RestoreAtEveryLengthIsTheColdRun) {
  auto cold = bench_.model().NewSequence();
  for (int64_t length = 1; length <= Longest(); length += Step()) {
    bench_.Run(*cold, bench_.tokens(), length);
    const std::vector<std::byte> snapshot = CacheBench::Snapshot(*cold);
    auto restored = bench_.Restore(snapshot, CacheBench::FullBlocks(*cold));
    EXPECT_EQ(CacheBench::Snapshot(*restored), snapshot) << "length " << length;
    EXPECT_TRUE(Continues(*restored)) << "length " << length;
  }
}

// Rows known beyond the snapshot stay as they are and are not paid for twice.
TEST_P(Snapshots, RestoreBeforeFurtherKnownBlocksIsTheColdRun) {
  const auto count = static_cast<int64_t>(bench_.tokens().size());
  if (bench_.layout().block_bytes == 0 || count < kBlockTokens + kContinued) return;
  auto whole = bench_.model().NewSequence();
  bench_.Run(*whole, bench_.tokens(), kBlockTokens + 2);
  for (const int64_t length : Values({1, 2, 77, 126, 127}, {1, 126})) {
    auto cold = bench_.model().NewSequence();
    bench_.Run(*cold, bench_.tokens(), length);
    auto restored = bench_.Restore(CacheBench::Snapshot(*cold), CacheBench::FullBlocks(*whole));
    EXPECT_EQ(restored->known_tokens(), kBlockTokens);
    const std::vector<std::byte> before(
        restored->blocks()[0].bytes(), restored->blocks()[0].bytes() + bench_.layout().block_bytes);
    const Matrix<float> logits =
        bench_.Run(*restored, bench_.tokens(), kBlockTokens + kContinued, 50);
    EXPECT_TRUE(
        SameBits(logits.view(), std::as_const(whole_).view().Rows(length, logits.view().rows)));
    EXPECT_TRUE(restored->blocks()[0].SameBlock(whole->blocks()[0]));
    EXPECT_EQ(std::memcmp(before.data(), whole->blocks()[0].bytes(), before.size()), 0);
  }
}

TEST_P(Snapshots, ForksGoTheirOwnWays) {
  for (const int64_t length : Values({1, 2, 33, 64, 127, 128, 129}, {2, 127, 129})) {
    if (length > Longest()) continue;
    auto trunk = bench_.model().NewSequence();
    bench_.Run(*trunk, bench_.tokens(), length);
    auto fork = trunk->Fork();
    auto other = trunk->Fork();
    for (size_t i = 0; i < trunk->blocks().size(); ++i) {
      EXPECT_TRUE(trunk->blocks()[i].SameBlock(fork->blocks()[i]));
    }
    // The other one reads something else, first.
    std::vector<int32_t> elsewhere(bench_.tokens().begin(), bench_.tokens().begin() + length);
    elsewhere.insert(elsewhere.end(), bench_.tokens().rbegin(),
                     bench_.tokens().rbegin() + kContinued);
    const Matrix<float> cold = RunTokens(bench_.model(), elsewhere);
    const Matrix<float> warm = bench_.Run(*other, elsewhere, length + kContinued);
    EXPECT_TRUE(SameBits(warm.view(), cold.view().Rows(length, kContinued)));
    EXPECT_TRUE(Continues(*fork)) << "length " << length;
    EXPECT_TRUE(Continues(*trunk)) << "length " << length;
    // Only the open block was copied.
    for (size_t i = 0; i < static_cast<size_t>(length / kBlockTokens); ++i) {
      if (i >= trunk->blocks().size()) break;
      EXPECT_TRUE(trunk->blocks()[i].SameBlock(fork->blocks()[i]));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Snapshots, ::testing::Values("tiny_swa", "full_mini", "wide"));

TEST(Snapshot, BytesThatAreNoneAreRefused) {
  CacheBench bench("full_mini");
  auto cold = bench.model().NewSequence();
  bench.Run(*cold, bench.tokens(), 131);
  const std::vector<std::byte> good = CacheBench::Snapshot(*cold);
  const auto error = [&](std::span<const std::byte> bytes, std::vector<BlockRef> blocks) {
    auto state = bench.model().NewSequence();
    const Status status = state->RestoreSnapshot(bytes, std::move(blocks));
    EXPECT_EQ(state->length(), status ? 131 : 0);
    return status ? std::string() : status.error().message;
  };
  const std::vector<BlockRef> blocks = CacheBench::FullBlocks(*cold);
  EXPECT_EQ(error(good, blocks), "");
  for (const size_t size : {size_t{0}, size_t{31}, size_t{32}, good.size() - 1}) {
    EXPECT_NE(error(std::span(good).first(size), blocks), "") << size;
  }
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  EXPECT_NE(error(longer, blocks), "");
  // Every byte of the header, but for the lowest of two positions that lie before the window.
  for (size_t byte = 0; byte < 32; ++byte) {
    if (byte == 16 || byte == 24) continue;
    std::vector<std::byte> bad = good;
    bad[byte] ^= std::byte{0x41};
    EXPECT_NE(error(bad, blocks), "") << "byte " << byte;
  }
  EXPECT_NE(error(good, {}).find("needs 1 full blocks, found 0"), std::string::npos);
}

TEST(Snapshot, ReleasedSizes) {
  auto config = LoadConfig(GoldenPath("released/config.json"));
  ASSERT_TRUE(config.has_value());
  const StateLayout layout(*config, Numerics::Official());
  // Rings, an open group of three sources, 127 open tokens' rows, history, header.
  EXPECT_EQ(SequenceState::SnapshotBytesMax(layout),
            2'703'360 + 3 * 4096 + (3 * 63 + 127) * 356 + 12 + 32);
}

// A sequence never takes more blocks than the pool's budget, and says so.
TEST(Snapshot, APoolWithoutRoomIsAnErrorAndLeavesTheSequenceAsItWas) {
  CacheBench bench("full_mini");
  const Matrix<float> whole = RunTokens(bench.model(), bench.tokens());
  BlockPool pool(bench.layout().block_bytes, bench.layout().block_bytes);
  auto state = bench.model().NewSequence(pool);
  bench.Run(*state, bench.tokens(), 120);
  ThreadPool threads(1);
  Arena arena;
  Matrix<float> logits(9, bench.model().config().vocab_size);
  const ForwardRows call{.state = state.get(), .tokens = std::span(bench.tokens()).subspan(120, 9)};
  const Status status = bench.model().Forward({&call, 1}, logits.view(), threads, arena);
  ASSERT_FALSE(status.has_value());
  EXPECT_NE(status.error().message.find("--kv-ram"), std::string::npos);
  EXPECT_EQ(state->length(), 120);
  EXPECT_EQ(pool.usage().live_blocks, 1);
  const Matrix<float> rest = bench.Run(*state, bench.tokens(), 128);
  EXPECT_TRUE(SameBits(rest.view(), whole.view().Rows(120, 8)));
}

TEST(Snapshot, ReservedBlocksAreThereWhenTheyAreNeeded) {
  CacheBench bench("full_mini");
  BlockPool pool(bench.layout().block_bytes, 3 * bench.layout().block_bytes);
  auto state = bench.model().NewSequence(pool);
  EXPECT_FALSE(state->Reserve(3 * kBlockTokens + 1));
  ASSERT_TRUE(state->Reserve(3 * kBlockTokens));
  EXPECT_FALSE(pool.Allocate());
  bench.Run(*state, bench.tokens(), 130);
  EXPECT_EQ(pool.usage().live_blocks, 2);
  EXPECT_EQ(pool.usage().reserved_bytes, pool.block_bytes());
  // A fork needs one block for the copy of the open one: the third is spoken for.
  auto fork = state->Fork();
  EXPECT_FALSE(fork->Begin(1));
  state.reset();
  EXPECT_EQ(pool.usage().reserved_bytes, 0);
  EXPECT_TRUE(fork->Begin(1));
}

}  // namespace
}  // namespace minke::testing
