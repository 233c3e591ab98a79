// The disk tier as its callers see it: what was put comes back whole, across restarts, under its
// budgets, or not at all.
#include "prefix_cache/block_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/storage_system.h"
#include "prefix_cache/record_format.h"
#include "tests/prefix_cache/store_rig.h"
#include "tests/support/faulty_storage.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::Fault;
using testing::FaultyStorage;
using testing::MemoryDirectory;
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

int64_t DiskBytes(const std::string& directory) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const auto status = MakePosixStorage()->Inspect(entry.path());
    if (status && *status) bytes += (*status)->disk_bytes;
  }
  return bytes;
}

// Whether any file of the directory contains the bytes.
bool Contains(const std::string& directory, std::string_view bytes) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(stream)),
                           std::istreambuf_iterator<char>());
    if (text.find(bytes) != std::string::npos) return true;
  }
  return false;
}

std::string_view BytesOf(const std::vector<int32_t>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(int32_t)};
}

class Overhead : public ::testing::TestWithParam<int64_t> {};

TEST_P(Overhead, IsAtMostTwoPercentOfAReleasedBlock) {
  constexpr int64_t kRecords = 600;
  constexpr int64_t kOverheadMax = 2278;  // bytes per record: 2 % of 128 * 890
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const auto store = rig.Open();
  for (int64_t i = 0; i < kRecords; ++i) {
    rig.Put(*store, BlockOf(i / 20, i % 20, {.payload_bytes = GetParam()}));
  }
  store->Flush();
  const int64_t open_bytes = DiskBytes(rig.options.directory);
  EXPECT_EQ(store->Stats().block_records, kRecords);
  EXPECT_EQ(store->Stats().disk_bytes, open_bytes);
  EXPECT_LE(open_bytes, kRecords * (GetParam() + kOverheadMax));
  EXPECT_GT(open_bytes, kRecords * GetParam());
  std::printf("overhead %lld B a record\n",
              static_cast<long long>(open_bytes / kRecords - GetParam()));
}

INSTANTIATE_TEST_SUITE_P(BlockStore, Overhead, ::testing::Values(113920, 17920));

TEST(BlockStore, StaysUnderItsBudgetsAndEvictsTheEndsOfOldChainsFirst) {
  const MemoryDirectory directory;
  StoreRig rig(directory.Path("cache"));
  rig.options.budget_bytes = int64_t{4} << 20;
  rig.options.snapshot_budget_bytes = 300000;
  rig.options.segment_bytes = 400000;
  const auto store = rig.Open();
  const std::vector<CacheKey> kept = {BlockOf(0, 1).key, BlockOf(0, 0).key};
  std::mt19937 random(5);
  for (int64_t i = 0; i < 20000; ++i) {
    const auto chain = static_cast<int64_t>(i / 40);
    const int64_t index = (i % 40) / 2;
    const auto bytes = static_cast<int64_t>(random() % 9000);
    if (i % 2 == 0) {
      rig.Put(*store, BlockOf(chain, index, {.payload_bytes = bytes}));
    } else if (random() % 4 == 0) {
      rig.Put(*store, SnapshotOf(chain, index, index, {.payload_bytes = 20000}));
    }
    store->Touch(kept);
    if (i % 16 != 0) continue;
    store->Flush();
    const StoreStats stats = store->Stats();
    ASSERT_LE(DiskBytes(rig.options.directory), rig.options.budget_bytes) << "operation " << i;
    ASSERT_LE(stats.snapshot_bytes, rig.options.snapshot_budget_bytes);
    ASSERT_TRUE(stats.enabled) << stats.warning;
    ASSERT_EQ(stats.records_skipped, 0);
    rig.Read(*store, BlockOf(chain, index, {.payload_bytes = bytes}));
  }
  store->Flush();
  const StoreStats stats = store->Stats();
  EXPECT_GT(stats.records_evicted, 5000);
  EXPECT_EQ(stats.records_damaged, 0);
  EXPECT_GT(stats.disk_bytes, rig.options.budget_bytes / 2) << "evicts more than it must";
  // Used all the time, so never the oldest; of every chain the beginning outlives the end.
  for (const CacheKey& key : kept) EXPECT_TRUE(store->Contains(key));
  const auto listed = store->List(std::nullopt, 100000);
  ASSERT_TRUE(listed);
  EXPECT_GT(listed->size(), 100U);
  for (const ListedRecord& record : *listed) {
    const bool first = record.info.kind == RecordKind::kBlock
                           ? record.info.end_position == kCacheBlockTokens
                           : record.info.end_position < kCacheBlockTokens;
    EXPECT_TRUE(first || store->Contains(record.info.parent)) << "an orphan";
  }
  const auto verified = store->Verify(false, nullptr);
  ASSERT_TRUE(verified);
  EXPECT_EQ(verified->records_damaged, 0);
  EXPECT_EQ(verified->records_checked, stats.block_records + stats.snapshot_records);
}

TEST(BlockStore, EvictsWholeSegmentsWhereFilesHaveNoHoles) {
  const MemoryDirectory directory;
  FaultyStorage no_holes(Fault::kNoHoles, 0, false);
  StoreRig rig(directory.Path("cache"));
  rig.options.system = &no_holes;
  rig.options.budget_bytes = int64_t{4} << 20;
  rig.options.segment_bytes = 400000;
  const auto store = rig.Open();
  for (int64_t i = 0; i < 2000; ++i) {
    rig.Put(*store, BlockOf(i / 10, i % 10, {.payload_bytes = 8000}));
    if (i % 16 != 0) continue;
    store->Flush();
    ASSERT_LE(DiskBytes(rig.options.directory), rig.options.budget_bytes) << i;
  }
  store->Flush();
  EXPECT_GT(store->Stats().records_evicted, 1000);
  EXPECT_GT(store->Stats().block_records, 100);
  EXPECT_EQ(rig.Read(*store, BlockOf(199, 9, {.payload_bytes = 8000})), ReadOutcome::kHit);
}

TEST(BlockStore, ARecordLargerThanTheBudgetIsSkipped) {
  const MemoryDirectory directory;
  StoreRig rig(directory.Path("cache"), 1100000);
  rig.options.budget_bytes = kStoreBudgetBytesMin;
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0, {.payload_bytes = 1100000}));
  store->Flush();
  EXPECT_EQ(store->Stats().records_skipped, 1);
  EXPECT_FALSE(store->Contains(BlockOf(1, 0).key));
  EXPECT_TRUE(store->Stats().enabled);
}

TEST(BlockStore, WritesNoMoreThanItsCapInAnyHour) {
  const MemoryDirectory directory;
  StoreRig rig(directory.Path("cache"));
  constexpr int64_t kMinuteUs = int64_t{60} * 1000 * 1000;
  // 10,048 is what a block with 9,280 B of payload takes.
  rig.options.write_bytes_per_hour = 10 * 10048;
  rig.now_us = int64_t{1000} * 60 * kMinuteUs;
  const auto store = rig.Open();
  const auto put = [&](int64_t i) {
    rig.Put(*store, BlockOf(i, 0, {.payload_bytes = 9280}));
    store->Flush();
    return store->Contains(BlockOf(i, 0).key);
  };
  for (int64_t i = 0; i < 5; ++i) EXPECT_TRUE(put(i));
  rig.now_us += 30 * kMinuteUs;
  for (int64_t i = 5; i < 10; ++i) EXPECT_TRUE(put(i));
  EXPECT_FALSE(put(10));
  EXPECT_EQ(store->Stats().records_skipped, 1);
  rig.now_us += 29 * kMinuteUs;
  EXPECT_FALSE(put(11));
  rig.now_us += 2 * kMinuteUs;  // the first five are more than an hour ago
  for (int64_t i = 12; i < 17; ++i) EXPECT_TRUE(put(i));
  EXPECT_FALSE(put(17));
  EXPECT_EQ(store->Stats().bytes_written, 15 * 10048);
}

TEST(BlockStore, HotRecordsAreNotRewrittenForTheirUses) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0));
  store->Flush();
  const int64_t written = store->Stats().bytes_written;
  for (int i = 0; i < 20000; ++i) store->Touch(std::vector<CacheKey>{BlockOf(1, 0).key});
  rig.Put(*store, BlockOf(1, 0));  // is there already
  store->Flush();
  EXPECT_EQ(store->Stats().bytes_written, written);
  EXPECT_EQ(store->Stats().records_written, 1);
}

TEST(BlockStore, AFullQueueSkips) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  rig.options.queue_bytes = RecordBytes(kCacheBlockTokens, 1000);
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0, {.payload_bytes = 1000}));  // fits to the byte
  rig.Put(*store, BlockOf(2, 0, {.payload_bytes = 2000}));  // never does
  store->Flush();
  EXPECT_TRUE(store->Contains(BlockOf(1, 0).key));
  EXPECT_FALSE(store->Contains(BlockOf(2, 0).key));
  EXPECT_EQ(store->Stats().records_skipped, 1);
}

TEST(BlockStore, FindsChildrenAndContents) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    StoreRig other(directory.Path("cache"));
    other.options.fingerprint = testing::NumberKey("other", 0);
    const auto store = other.Open();
    other.Put(*store, BlockOf(9, 0, {.model = "other"}));
  }
  const auto store = rig.Open();
  const RecordInfo parent = BlockOf(1, 0);
  rig.Put(*store, parent);
  for (const int64_t tail : {3, 60, 127}) rig.Put(*store, SnapshotOf(1, 0, tail));
  rig.Put(*store, BlockOf(1, 1));
  for (const bool published : {false, true}) {
    SCOPED_TRACE(published);
    if (published) store->Flush();
    const auto snapshots = store->Children(parent.key, RecordKind::kSnapshot, 10);
    ASSERT_EQ(snapshots.size(), 3U);
    EXPECT_EQ(snapshots[0].tokens.size(), 127U);  // used last
    EXPECT_TRUE(snapshots[2].tokens == SnapshotOf(1, 0, 3).tokens);
    EXPECT_EQ(store->Children(parent.key, RecordKind::kSnapshot, 2).size(), 2U);
    ASSERT_EQ(store->Children(parent.key, RecordKind::kBlock, 10).size(), 1U);
    EXPECT_TRUE(store->HasContent(parent.content, true));
    EXPECT_FALSE(store->HasContent(parent.content, false));
    EXPECT_FALSE(store->HasContent(BlockOf(9, 0).content, true));
    EXPECT_TRUE(store->HasContent(BlockOf(9, 0).content, false));
  }
}

TEST(BlockStore, ForgettingATenantLeavesNothingOfIt) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const auto store = rig.Open();
  const RecordShape alice = {.payload_bytes = 5000, .tenant = "alice"};
  const RecordShape bob = {.payload_bytes = 5000, .tenant = "bob"};
  for (int64_t i = 0; i < 6; ++i) {
    rig.Put(*store, BlockOf(1, i, alice));
    rig.Put(*store, BlockOf(2, i, bob));
  }
  rig.Put(*store, SnapshotOf(1, 5, 9, alice));
  store->Flush();
  const RecordInfo info = BlockOf(1, 2, alice);
  const CacheKey name = TenantKey("alice");
  const std::string_view name_bytes(reinterpret_cast<const char*>(name.bytes.data()), 32);
  const std::string_view key_bytes(reinterpret_cast<const char*>(info.key.bytes.data()), 32);
  for (const std::string_view bytes : {BytesOf(info.tokens), name_bytes, key_bytes}) {
    EXPECT_TRUE(Contains(rig.options.directory, bytes));
  }
  const auto forgotten = store->Forget(name);
  ASSERT_TRUE(forgotten) << forgotten.error().message;
  EXPECT_EQ(*forgotten, 7);
  for (const std::string_view bytes : {BytesOf(info.tokens), name_bytes, key_bytes}) {
    EXPECT_FALSE(Contains(rig.options.directory, bytes));
  }
  for (int64_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rig.Read(*store, BlockOf(1, i, alice)), ReadOutcome::kMiss);
    EXPECT_EQ(rig.Read(*store, BlockOf(2, i, bob)), ReadOutcome::kHit);
  }
  EXPECT_EQ(store->Stats().records_damaged, 0);
}

TEST(BlockStore, ExportsAndImports) {
  const TempDirectory directory;
  const std::string file = directory.Path("export.mks");
  std::vector<RecordInfo> infos;
  for (int64_t i = 0; i < 5; ++i) infos.push_back(BlockOf(1, i, {.tenant = "alice"}));
  infos.push_back(SnapshotOf(1, 4, 77, {.payload_bytes = 0, .tenant = "alice"}));
  {
    StoreRig rig(directory.Path("from"));
    const auto store = rig.Open();
    for (const RecordInfo& info : infos) rig.Put(*store, info);
    rig.Put(*store, BlockOf(2, 0, {.tenant = "bob"}));
    const auto exported = store->Export(file, TenantKey("alice"));
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(*exported, 6);
    const auto again = store->Export(file, std::nullopt);
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().message.find("exists already"), std::string::npos);
  }
  StoreRig rig(directory.Path("to"));
  const auto store = rig.Open();
  rig.Put(*store, infos[0]);
  store->Flush();
  {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(kSegmentHeaderBytes +
                                             2 * RecordBytes(kCacheBlockTokens, 1000) + 900));
    stream.put('\x7e');  // in the payload of the third record
  }
  const auto imported = store->Import(file);
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->records, 4);
  EXPECT_EQ(imported->known, 1);
  EXPECT_EQ(imported->damaged, 1);
  EXPECT_EQ(rig.Read(*store, infos[2]), ReadOutcome::kMiss);
  for (const size_t i : {0U, 1U, 3U, 4U, 5U}) {
    EXPECT_EQ(rig.Read(*store, infos[i]), ReadOutcome::kHit) << i;
  }
  EXPECT_FALSE(store->Import(directory.Path("nothing.mks")));
  directory.Write("text", "not a cache");
  const auto text = store->Import(directory.Path("text"));
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("does not begin like"), std::string::npos);
  EXPECT_TRUE(store->Stats().enabled) << store->Stats().warning;
}

TEST(BlockStore, GcCompactsSparseSegmentsAndDropsOrphans) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  rig.options.segment_bytes = 60000;
  const auto store = rig.Open();
  for (int64_t i = 0; i < 60; ++i) {
    const bool kept = i % 10 == 0;
    rig.Put(*store, BlockOf(i, 0, {.payload_bytes = 5000, .tenant = kept ? "kept" : "gone"}));
  }
  rig.Put(*store, BlockOf(7, 3, {.tenant = "kept"}));  // its block before was never there
  ASSERT_TRUE(store->Forget(TenantKey("gone")));
  const int64_t before = store->Stats().segments;
  ASSERT_GT(before, 3);
  const auto freed = store->Gc();
  ASSERT_TRUE(freed) << freed.error().message;
  EXPECT_GT(*freed, 0);
  EXPECT_LE(store->Stats().segments, 2);
  EXPECT_EQ(store->Stats().block_records, 6);
  EXPECT_EQ(rig.Read(*store, BlockOf(7, 3, {.tenant = "kept"})), ReadOutcome::kMiss);
  for (int64_t i = 0; i < 60; i += 10) {
    EXPECT_EQ(rig.Read(*store, BlockOf(i, 0, {.payload_bytes = 5000, .tenant = "kept"})),
              ReadOutcome::kHit);
  }
}

TEST(BlockStore, ManyThreadsAtOnce) {
  const MemoryDirectory directory;
  StoreRig rig(directory.Path("cache"));
  rig.options.budget_bytes = int64_t{2} << 20;
  rig.options.segment_bytes = 200000;
  std::atomic<int64_t> clock = int64_t{1} << 50;
  rig.options.now_us = [&clock]() { return clock.fetch_add(1); };
  const auto store = rig.Open();
  std::atomic<int64_t> hits = 0;
  const auto work = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 400; ++i) {
      const auto chain = static_cast<int64_t>(random() % 60);
      const auto info = BlockOf(chain, static_cast<int64_t>(random() % 6), {.payload_bytes = 4000});
      switch (random() % 8) {
        case 0:
          store->Touch(std::vector<CacheKey>{info.key, info.parent});
          break;
        case 1:
          store->Children(info.parent, RecordKind::kBlock, 3);
          break;
        case 2:
          if (i % 20 == 0) store->Flush();
          break;
        case 3:
          if (i % 50 == 0) store->Gc().map([](int64_t) {});
          break;
        case 4:
        case 5:
          hits += rig.Read(*store, info) == ReadOutcome::kHit ? 1 : 0;
          break;
        default:
          rig.Put(*store, info);
          break;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (uint32_t seed = 0; seed < 4; ++seed) threads.emplace_back(work, seed);
  }
  store->Flush();
  EXPECT_GT(hits.load(), 20);
  EXPECT_EQ(store->Stats().records_damaged, 0);
  EXPECT_LE(store->Stats().disk_bytes, rig.options.budget_bytes);
  EXPECT_TRUE(store->Stats().enabled) << store->Stats().warning;
}

}  // namespace
}  // namespace minke
