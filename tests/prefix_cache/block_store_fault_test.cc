// A disk that fails: serving goes on without the tier, with one warning, and never a wrong byte.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/prefix_cache/store_rig.h"
#include "tests/support/faulty_storage.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::Fault;
using testing::FaultyStorage;
using testing::MemoryDirectory;
using testing::SnapshotOf;
using testing::StoreRig;
using testing::TempDirectory;

constexpr int64_t kChains = 3;
constexpr int64_t kBlocks = 2;

std::vector<RecordInfo> WorkloadRecords() {
  std::vector<RecordInfo> infos;
  for (int64_t chain = 0; chain < kChains; ++chain) {
    for (int64_t i = 0; i < kBlocks; ++i) infos.push_back(BlockOf(chain, i));
    infos.push_back(SnapshotOf(chain, kBlocks - 1, 5, {.payload_bytes = 3000}));
  }
  return infos;
}

// Two lives of a store: puts, reads, evictions (of snapshots), forgetting. True if both opened.
bool RunWorkload(const std::string& directory, StorageSystem* system, StoreStats* stats) {
  const std::vector<RecordInfo> infos = WorkloadRecords();
  for (int life = 0; life < 2; ++life) {
    StoreRig rig(directory, 4096);
    rig.options.system = system;
    rig.options.segment_bytes = 12000;
    rig.options.snapshot_budget_bytes = 7000;
    auto opened = BlockStore::Open(rig.options);
    if (!opened) {
      EXPECT_NE(opened.error().message.find("minke_"), std::string::npos)
          << "names no path: " << opened.error().message;
      return false;
    }
    BlockStore& store = **opened;
    for (size_t i = 0; i < infos.size(); ++i) {
      rig.Put(store, infos[i]);
      if (i % 3 == 0) store.Flush();
      if (i % 4 == 0) rig.Read(store, infos[i / 2]);
      store.Touch(std::vector<CacheKey>{infos[i / 2].key});
    }
    store.Flush();
    for (const RecordInfo& info : infos) rig.Read(store, info);
    if (life == 1) {
      // May fail; may not crash.
      if (!store.Forget(infos[0].tenant)) store.Flush();
      if (!store.Gc()) store.Flush();
    }
    *stats = store.Stats();
  }
  return true;
}

class EveryOperation : public ::testing::TestWithParam<Fault> {};

TEST_P(EveryOperation, FailingNeverCrashesNorGivesWrongBytes) {
  const MemoryDirectory directory;
  StoreStats stats;
  FaultyStorage counting;
  ASSERT_TRUE(RunWorkload(directory.Path("counting"), &counting, &stats));
  ASSERT_GT(counting.operations(), 100);
  int64_t met = 0;
  int64_t warned = 0;
  for (const bool once : {false, true}) {
    // Every third, another one for each fault; of faults that pass, fewer.
    const int64_t step = once ? 7 : 3;
    for (int64_t k = static_cast<int64_t>(GetParam()) % step; k < counting.operations();
         k += step) {
      SCOPED_TRACE("operation " + std::to_string(k) + (once ? " once" : " and after"));
      const std::string path = directory.Path("faulty");
      std::filesystem::remove_all(path);
      FaultyStorage faulty(GetParam(), k, once);
      const bool opened = RunWorkload(path, &faulty, &stats);
      met += faulty.failures() > 0 ? 1 : 0;
      if (opened && !stats.enabled) {
        ++warned;
        EXPECT_GT(stats.io_errors, 0);
        EXPECT_NE(stats.warning.find(path), std::string::npos) << stats.warning;
        EXPECT_EQ(stats.warning.find('\n'), std::string::npos);
      }
      // The same directory on a sound disk again.
      StoreRig rig(path, 4096);
      const auto store = rig.Open();
      ASSERT_TRUE(store);
      for (const RecordInfo& info : WorkloadRecords()) rig.Read(*store, info);
      EXPECT_TRUE(store->Stats().enabled) << store->Stats().warning;
    }
  }
  EXPECT_GT(met, 20);
  EXPECT_GT(warned, 5);
}

std::string FaultName(const ::testing::TestParamInfo<Fault>& info) {
  switch (info.param) {
    case Fault::kDiskFull:
      return "DiskFull";
    case Fault::kReadOnly:
      return "ReadOnly";
    case Fault::kIoError:
      return "IoError";
    case Fault::kShortWrite:
      return "ShortWrite";
    default:
      return "None";
  }
}

INSTANTIATE_TEST_SUITE_P(BlockStoreFault, EveryOperation,
                         ::testing::Values(Fault::kDiskFull, Fault::kReadOnly, Fault::kIoError,
                                           Fault::kShortWrite),
                         FaultName);

TEST(BlockStoreFault, AFullDiskSwitchesWritingOffAndReadingGoesOn) {
  const TempDirectory directory;
  FaultyStorage probe;
  StoreStats ignored;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    ASSERT_TRUE(store);
    rig.Put(*store, BlockOf(1, 0));
  }
  rig.options.system = &probe;
  int64_t opening = 0;
  {
    const auto store = rig.Open();
    ASSERT_TRUE(store);
    opening = probe.operations();
  }
  FaultyStorage full(Fault::kDiskFull, opening, false);
  rig.options.system = &full;
  const auto store = rig.Open();
  ASSERT_TRUE(store);
  rig.Put(*store, BlockOf(1, 1));
  store->Flush();
  const StoreStats stats = store->Stats();
  EXPECT_FALSE(stats.enabled);
  EXPECT_EQ(stats.io_errors, 1);
  EXPECT_NE(stats.warning.find("No space left on device"), std::string::npos) << stats.warning;
  EXPECT_NE(stats.warning.find("free space"), std::string::npos) << stats.warning;
  EXPECT_FALSE(store->Contains(BlockOf(1, 1).key));
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
  rig.Put(*store, BlockOf(1, 2));  // is dropped at once
  store->Flush();
  EXPECT_EQ(store->Stats().io_errors, 1);
  EXPECT_EQ(store->Stats().warning, stats.warning);
}

// The index's own writes do not go through StorageSystem; a limit on the size of files reaches
// them.
TEST(BlockStoreFault, AnIndexThatCannotGrowSwitchesTheTierOff) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const auto store = rig.Open();
  ASSERT_TRUE(store);
  rig.Put(*store, BlockOf(1, 0));
  store->Flush();
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit = before;
  limit.rlim_cur = 60000;  // the log is longer by now, or will be; the segment is not
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int64_t i = 0; i < 40; ++i) {
    rig.Put(*store, BlockOf(2, i, {.payload_bytes = 0}));
    store->Flush();
  }
  const StoreStats stats = store->Stats();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, ignored);
  EXPECT_FALSE(stats.enabled);
  EXPECT_GT(stats.io_errors, 0);
  EXPECT_NE(stats.warning.find(rig.options.directory), std::string::npos) << stats.warning;
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
}

TEST(BlockStoreFault, ASegmentThatVanishesWhileClosedIsRemovedFromTheIndexOnce) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    rig.Put(*store, BlockOf(1, 0));
    rig.Put(*store, BlockOf(1, 1));
  }
  ASSERT_TRUE(std::filesystem::remove(directory.Path("cache/segment-00000001.mks")));
  {
    const auto store = rig.Open();
    EXPECT_EQ(store->Stats().records_damaged, 2);
    EXPECT_EQ(store->Stats().block_records, 0);
    EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kMiss);
    rig.Put(*store, BlockOf(1, 0));
  }
  const auto store = rig.Open();
  EXPECT_EQ(store->Stats().records_damaged, 0);
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
}

TEST(BlockStoreFault, ASegmentThatVanishesWhileOpenIsAMissAndIsReplaced) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0));
  rig.Put(*store, BlockOf(1, 1));
  store->Flush();
  ASSERT_TRUE(std::filesystem::remove(directory.Path("cache/segment-00000001.mks")));
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kMiss);
  // The removal is a job of the storage thread, which a record put afterwards waits for.
  rig.Put(*store, BlockOf(3, 0));
  store->Flush();
  EXPECT_FALSE(store->Contains(BlockOf(1, 1).key));
  rig.Put(*store, BlockOf(1, 0));
  store->Flush();
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
  EXPECT_EQ(rig.Read(*store, BlockOf(3, 0)), ReadOutcome::kHit);
  EXPECT_EQ(store->Stats().records_damaged, 2);
  EXPECT_TRUE(store->Stats().enabled) << store->Stats().warning;
}

}  // namespace
}  // namespace minke
