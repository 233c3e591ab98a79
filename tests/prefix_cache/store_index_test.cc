// The index by itself: what it answers, what it refuses to believe.
#include "prefix_cache/store_index.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "prefix_cache/record_format.h"
#include "prefix_cache/store_reader.h"
#include "tests/prefix_cache/store_rig.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::MemoryDirectory;
using testing::SnapshotOf;

IndexRow Row(const RecordInfo& info, int64_t segment, int64_t offset, int64_t used_us) {
  return RowFor(info, static_cast<int64_t>(info.tokens.size()), segment, offset, used_us);
}

class StoreIndexTest : public ::testing::Test {
 protected:
  StoreIndex Open(IndexMode mode = IndexMode::kCreateOrOpen) {
    auto index = StoreIndex::Open(directory_.Path("index.sqlite"), mode);
    EXPECT_TRUE(index) << (index ? "" : index.error().message);
    return std::move(*index);
  }
  static void Insert(StoreIndex& index, const std::vector<IndexRow>& rows) {
    const Status done = index.Transaction(false, [&]() -> Status {
      for (const IndexRow& row : rows) EXPECT_TRUE(TRY(index.Insert(row)));
      return {};
    });
    ASSERT_TRUE(done) << done.error().message;
  }

  MemoryDirectory directory_;
};

TEST_F(StoreIndexTest, FindsWhatWasInserted) {
  StoreIndex index = Open();
  const RecordInfo info = BlockOf(1, 0);
  Insert(index, {Row(info, 3, 4096, 77)});
  for (const bool reader : {false, true}) {
    StoreIndex other = Open(reader ? IndexMode::kReader : IndexMode::kLookOnly);
    const auto found = other.Find(info.key, info.fingerprint);
    ASSERT_TRUE(found && *found);
    EXPECT_EQ((*found)->segment, 3);
    EXPECT_EQ((*found)->offset, 4096);
    EXPECT_EQ((*found)->last_used_us, 77);
    EXPECT_TRUE((*found)->tenant == info.tenant && (*found)->content == info.content);
    EXPECT_FALSE(*other.Find(info.key, testing::NumberKey("other", 0)));
    EXPECT_FALSE(*other.Find(info.parent, info.fingerprint));
  }
}

TEST_F(StoreIndexTest, PlacesAtTheLimitsRoundTrip) {
  StoreIndex index = Open();
  const int64_t last = kSegmentOffsetMax - kRecordAlignBytes;
  Insert(index, {Row(BlockOf(1, 0), kSegmentNumberMax, last, 1), Row(BlockOf(1, 1), 0, 4096, 1)});
  const auto found = index.Find(BlockOf(1, 0).key, BlockOf(1, 0).fingerprint);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->segment, kSegmentNumberMax);
  EXPECT_EQ((*found)->offset, last);
  EXPECT_EQ(index.RowsOfSegment(kSegmentNumberMax)->size(), 1U);
  EXPECT_EQ(index.RowsOfSegment(0)->size(), 1U);
}

TEST_F(StoreIndexTest, OldestLeavesAreTheEndsOfChains) {
  StoreIndex index = Open();
  // One chain of three used at 10, one of two used at 5, a snapshot below the first's second block.
  Insert(index, {Row(BlockOf(1, 0), 1, 4096, 10), Row(BlockOf(1, 1), 1, 8192, 10),
                 Row(BlockOf(1, 2), 1, 12288, 10), Row(SnapshotOf(1, 1, 4), 1, 16384, 7),
                 Row(BlockOf(2, 0), 1, 20480, 5), Row(BlockOf(2, 1), 1, 24576, 5)});
  const auto leaves = index.OldestLeaves(10);
  ASSERT_TRUE(leaves);
  ASSERT_EQ(leaves->size(), 3U);
  EXPECT_TRUE((*leaves)[0].key == BlockOf(2, 1).key);
  EXPECT_TRUE((*leaves)[1].key == SnapshotOf(1, 1, 4).key);
  EXPECT_TRUE((*leaves)[2].key == BlockOf(1, 2).key);
  EXPECT_EQ(index.OldestSnapshots(10)->size(), 1U);
  EXPECT_TRUE(*index.HasChildren(BlockOf(1, 1).key));
  EXPECT_FALSE(*index.HasChildren(BlockOf(1, 2).key));
  EXPECT_TRUE(index.Orphans()->empty());
}

TEST_F(StoreIndexTest, KnowsTheNeighboursOfAGap) {
  StoreIndex index = Open();
  const int64_t length = RecordBytes(kCacheBlockTokens, 1000);
  Insert(index, {Row(BlockOf(1, 0), 2, 4096, 1), Row(BlockOf(1, 1), 2, 40960, 1),
                 Row(BlockOf(1, 2), 3, 4096, 1)});
  const auto live = index.Neighbours(2, 8192);
  ASSERT_TRUE(live);
  EXPECT_EQ(live->previous_end, 4096 + length);
  EXPECT_EQ(live->next_begin, 40960);
  EXPECT_FALSE(index.Neighbours(2, 50000)->next_begin);  // the next segment is another file
  EXPECT_FALSE(index.Neighbours(3, 4096)->previous_end);
}

TEST_F(StoreIndexTest, RemovingNotesAnErasure) {
  StoreIndex index = Open();
  Insert(index, {Row(BlockOf(1, 0), 2, 4096, 1)});
  ASSERT_TRUE(index.Transaction(true, [&]() -> Status {
    EXPECT_TRUE(TRY(index.Remove(2, 4096)));
    EXPECT_FALSE(TRY(index.Remove(2, 4096)));
    return {};
  }));
  const auto erasures = index.Erasures();
  ASSERT_TRUE(erasures);
  ASSERT_EQ(erasures->size(), 1U);
  EXPECT_EQ(erasures->front().offset, 4096);
  ASSERT_TRUE(index.DropErasure(erasures->front()));
  EXPECT_TRUE(index.Erasures()->empty());
}

TEST_F(StoreIndexTest, AFailedTransactionLeavesNothing) {
  StoreIndex index = Open();
  const RecordInfo info = BlockOf(1, 0);
  const Status failed = index.Transaction(false, [&]() -> Status {
    EXPECT_TRUE(TRY(index.Insert(Row(info, 2, 4096, 1))));
    return Fail("no");
  });
  EXPECT_FALSE(failed);
  EXPECT_FALSE(*index.Find(info.key, info.fingerprint));
  Insert(index, {Row(info, 2, 4096, 1)});  // names that the first attempt made are made again
  EXPECT_TRUE(*index.Find(info.key, info.fingerprint));
}

TEST_F(StoreIndexTest, TouchGoesForwardOnly) {
  StoreIndex index = Open();
  const RecordInfo info = BlockOf(1, 0);
  Insert(index, {Row(info, 2, 4096, 100)});
  for (const int64_t used_us : {50, 200, 150}) {
    ASSERT_TRUE(index.Touch(info.key, info.fingerprint, used_us));
  }
  EXPECT_EQ((*index.Find(info.key, info.fingerprint))->last_used_us, 200);
}

TEST_F(StoreIndexTest, ARowThatCannotBeTrueIsAnError) {
  StoreIndex index = Open();
  IndexRow row = Row(BlockOf(1, 0), 2, 4096, 1);
  row.token_count = 127;
  ASSERT_TRUE(index.Insert(row));
  const Status visited = index.ForEach([](const IndexRow&) -> Status { return {}; });
  ASSERT_FALSE(visited);
  EXPECT_EQ(visited.error().code, ErrorCode::kInvalidInput);
}

TEST_F(StoreIndexTest, TheLogStaysShort) {
  StoreIndex index = Open();
  for (int64_t i = 0; i < 3000; ++i) {
    Insert(index, {Row(BlockOf(i, 0), 1, 4096 + i * 64, i)});
  }
  EXPECT_LT(std::filesystem::file_size(directory_.Path("index.sqlite-wal")), 1U << 20);
  ASSERT_TRUE(index.Checkpoint());
  EXPECT_EQ(std::filesystem::file_size(directory_.Path("index.sqlite-wal")), 0U);
}

}  // namespace
}  // namespace minke
