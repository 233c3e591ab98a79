// The disk tier as its callers see it: what was put comes back whole, across restarts, under its
// budgets, or not at all.
#include "prefix_cache/block_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/prefix_cache/store_rig.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::RecordShape;
using testing::SnapshotOf;
using testing::StoreRig;
using testing::TempDirectory;

TEST(BlockStore, ReturnsWhatWasPutAcrossARestart) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  std::vector<RecordInfo> infos;
  for (const int64_t bytes : {0, 1, 63, 64, 65, 4095, 4096, 17920, 113920}) {
    infos.push_back(BlockOf(bytes, 3, {.payload_bytes = bytes}));
    infos.push_back(SnapshotOf(bytes, 3, bytes % 128, {.payload_bytes = bytes}));
  }
  {
    const auto store = rig.Open();
    ASSERT_TRUE(store);
    for (const RecordInfo& info : infos) {
      EXPECT_FALSE(store->Contains(info.key));
      rig.Put(*store, info);
      EXPECT_TRUE(store->Contains(info.key));
      EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kHit);  // queued or published
    }
    store->Flush();
    for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kHit);
    EXPECT_EQ(store->Stats().records_written, static_cast<int64_t>(infos.size()));
  }
  const auto store = rig.Open();
  ASSERT_TRUE(store);
  for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kHit);
  const StoreStats stats = store->Stats();
  EXPECT_EQ(stats.block_records, 9);
  EXPECT_EQ(stats.snapshot_records, 9);
  EXPECT_EQ(stats.records_recovered, 0);
  EXPECT_EQ(stats.records_damaged, 0);
  EXPECT_EQ(stats.index_rebuilds, 0);
  EXPECT_TRUE(stats.enabled) << stats.warning;
}

}  // namespace
}  // namespace minke
