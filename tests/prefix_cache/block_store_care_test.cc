// The figures of verify and gc: exact, and the same whenever nothing has changed.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "prefix_cache/block_store.h"
#include "prefix_cache/record_format.h"
#include "tests/prefix_cache/store_rig.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::SnapshotOf;
using testing::StoreRig;
using testing::TempDirectory;

constexpr int64_t kRecords = 12;

// Records of many sizes, in segments of a few.
void FillWithSizes(StoreRig& rig) {
  rig.options.segment_bytes = 20000;
  const auto store = rig.Open();
  ASSERT_TRUE(store);
  for (int64_t i = 0; i < kRecords; ++i) {
    rig.Put(*store, BlockOf(i, 0, {.payload_bytes = 1 + 1000 * i}));
  }
}

void Overwrite(const std::string& path, int64_t offset, std::string_view bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(file.good()) << path;
}

VerifyReport Verify(StoreRig& rig) {
  rig.options.read_only = true;
  const auto report = rig.Open()->Verify(false, nullptr);
  rig.options.read_only = false;
  EXPECT_TRUE(report) << report.error().message;
  return report.value_or(VerifyReport());
}

TEST(BlockStoreCare, APerfectStoreHasNoOrphans) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  FillWithSizes(rig);
  const VerifyReport report = Verify(rig);
  EXPECT_EQ(report.records_checked, kRecords);
  EXPECT_EQ(report.orphan_bytes, 0);
  EXPECT_EQ(report.segments_damaged, 0);
  EXPECT_TRUE(report.problems.empty());
  {
    // Nor has one that evicted some of its records.
    rig.options.budget_bytes = kStoreBudgetBytesMin;
    const auto store = rig.Open();
    for (int64_t i = 0; i < 20; ++i) {
      rig.Put(*store, BlockOf(100 + i, 0, {.payload_bytes = 70001}));
    }
    store->Flush();
    EXPECT_GT(store->Stats().records_evicted, 0);
  }
  EXPECT_EQ(Verify(rig).orphan_bytes, 0);
}

TEST(BlockStoreCare, OrphansAreCountedByTheUnitsThatHoldThem) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  FillWithSizes(rig);
  const std::string path = rig.options.directory + "/segment-00000001.mks";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  Overwrite(path, size + 64 * 100 + 3, "litter");
  Overwrite(path, size + 64 * 2000, "more, of two units" + std::string(64, 'x'));
  EXPECT_EQ(Verify(rig).orphan_bytes, 64 + 64 + 18);
  // Nobody knows a segment that is not in the index; it is all orphans but for its header.
  std::filesystem::copy_file(path, rig.options.directory + "/segment-00000099.mks");
  const VerifyReport report = Verify(rig);
  EXPECT_GT(report.orphan_bytes, size - kSegmentHeaderBytes);
  ASSERT_EQ(report.problems.size(), 1U);
  EXPECT_NE(report.problems[0].find("segment-00000099.mks has the header of segment 1"),
            std::string::npos)
      << report.problems[0];
}

TEST(BlockStoreCare, VerifyReportsWhatIsWrongWithSegments) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  FillWithSizes(rig);
  const std::string damaged = rig.options.directory + "/segment-00000001.mks";
  const std::string newer = rig.options.directory + "/segment-00000002.mks";
  Overwrite(damaged, 20, "x");
  const SegmentHeaderBytes header =
      EncodeSegmentHeader({.version = kStoreFormatVersion + 1, .number = 2, .created_us = 1});
  Overwrite(newer, 0, {reinterpret_cast<const char*>(header.data()), header.size()});
  const VerifyReport report = Verify(rig);
  EXPECT_EQ(report.records_damaged, 0);
  EXPECT_EQ(report.segments_damaged, 2);
  ASSERT_EQ(report.problems.size(), 2U);
  EXPECT_NE(report.problems[0].find(damaged + " has a damaged header"), std::string::npos);
  EXPECT_NE(report.problems[1].find(newer + " has format 2, and this version knows 1"),
            std::string::npos);
}

int64_t BytesByLstat(const std::string& directory) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    struct stat info = {};
    EXPECT_EQ(::lstat(entry.path().c_str(), &info), 0);
    bytes += int64_t{info.st_blocks} * 512;
  }
  return bytes;
}

TEST(BlockStoreCare, GcTellsWhatTheDirectoryShrankBy) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    for (int64_t i = 0; i < 40; ++i) rig.Put(*store, BlockOf(i, 0, {.payload_bytes = 100000}));
  }
  const int64_t before = BytesByLstat(rig.options.directory);
  rig.options.budget_bytes = int64_t{2} << 20;
  const auto freed = rig.Open()->Gc();
  ASSERT_TRUE(freed) << freed.error().message;
  EXPECT_GT(*freed, int64_t{2} << 20);
  EXPECT_EQ(*freed, before - BytesByLstat(rig.options.directory));
  for (int again = 0; again < 3; ++again) EXPECT_EQ(rig.Open()->Gc().value_or(-1), 0);
  // With the store staying open, too.
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(50, 0));
  store->Flush();
  EXPECT_EQ(store->Gc().value_or(-1), 0);
  EXPECT_EQ(store->Gc().value_or(-1), 0);
}

// Every eviction lengthens the log of the index, which is not to cost further records.
TEST(BlockStoreCare, GcNearTheSmallestBudgetFreesNoMoreThanNeeded) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    for (int64_t i = 0; i < 200; ++i) rig.Put(*store, BlockOf(i, 0, {.payload_bytes = 12000}));
  }
  rig.options.budget_bytes = kStoreBudgetBytesMin;
  ASSERT_TRUE(rig.Open()->Gc());
  const int64_t left = BytesByLstat(rig.options.directory);
  EXPECT_LE(left, kStoreBudgetBytesMin);
  // A sixteenth is kept for the log, 32 KiB are taken by whoever has the index open.
  EXPECT_GT(left, kStoreBudgetBytesMin * 13 / 16);
}

TEST(BlockStoreCare, TheLogCountsOnceInTheBudgetAtOpening) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  rig.options.budget_bytes = kStoreBudgetBytesMin;
  FillWithSizes(rig);
  // A file that is not the store's counts whole, whatever the index's log takes.
  std::ofstream(rig.options.directory + "/stranger") << std::string(500000, 'x');
  const auto store = rig.Open();
  EXPECT_LE(store->Stats().disk_bytes, rig.options.budget_bytes);
  rig.Put(*store, BlockOf(60, 0, {.payload_bytes = 40000}));
  store->Flush();
  EXPECT_LE(store->Stats().disk_bytes, rig.options.budget_bytes);
  EXPECT_EQ(rig.Read(*store, BlockOf(60, 0, {.payload_bytes = 40000})), ReadOutcome::kHit);
}

}  // namespace
}  // namespace minke
