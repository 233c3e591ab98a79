// Opening the disk tier: who may, what is refused with which message, and what comes back after the
// last process ended in whatever way.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "prefix_cache/block_store.h"
#include "prefix_cache/record_format.h"
#include "tests/prefix_cache/store_rig.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::kNobody;
using testing::MemoryDirectory;
using testing::ReadBytes;
using testing::SnapshotOf;
using testing::StoreRig;
using testing::TempDirectory;

void ExpectSays(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
}

void WriteBytes(const std::string& path, std::string_view bytes) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(stream.good()) << path;
}

// Five blocks of a chain and a snapshot, in a directory that was closed.
std::vector<RecordInfo> FillWithChain(StoreRig& rig) {
  const auto store = rig.Open();
  std::vector<RecordInfo> infos;
  for (int64_t i = 0; i < 5; ++i) infos.push_back(BlockOf(1, i));
  infos.push_back(SnapshotOf(1, 4, 1, {.payload_bytes = 10}));
  for (const RecordInfo& info : infos) rig.Put(*store, info);
  return infos;
}

TEST(BlockStoreOpen, FilesAreForTheirOwnerAlone) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("deep/er/cache"));
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0));
  store->Flush();
  const auto mode = [](const std::filesystem::path& path) {
    return static_cast<unsigned>(std::filesystem::status(path).permissions());
  };
  EXPECT_EQ(mode(rig.options.directory), 0700U);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(rig.options.directory)) {
    EXPECT_EQ(mode(entry.path()), 0600U) << entry.path();
    ++files;
  }
  EXPECT_EQ(files, 5);  // index, its log, its shared memory, lock, segment
}

TEST(BlockStoreOpen, ASecondWriterIsRefusedAndAReaderIsNot) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0));
  store->Flush();
  ExpectSays(rig.OpenError(),
             {rig.options.directory, "in use by another process", "stop that one"});
  rig.options.read_only = true;
  {
    const auto reader = rig.Open();
    EXPECT_EQ(rig.Read(*reader, BlockOf(1, 0)), ReadOutcome::kHit);
    EXPECT_EQ(reader->List(std::nullopt, 10)->size(), 1U);
    EXPECT_EQ(reader->Verify(false, nullptr)->records_checked, 1);
    rig.Put(*reader, BlockOf(1, 1));  // is ignored
    EXPECT_FALSE(reader->Contains(BlockOf(1, 1).key));
    EXPECT_FALSE(reader->Gc());
  }
  rig.Put(*store, BlockOf(1, 1));
  store->Flush();
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 1)), ReadOutcome::kHit);
  store.reset();
  // Nobody writes now: looking leaves the directory as it is.
  const auto before = std::distance(std::filesystem::directory_iterator(rig.options.directory), {});
  {
    const auto reader = rig.Open();
    EXPECT_EQ(rig.Read(*reader, BlockOf(1, 1)), ReadOutcome::kHit);
    EXPECT_EQ(reader->List(std::nullopt, 10)->size(), 2U);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(rig.options.directory), {}), before);
  rig.options.directory = directory.Path("nowhere");
  ExpectSays(rig.OpenError(), {"no cache directory", "nowhere"});
}

TEST(BlockStoreOpen, AnotherModelsRecordsAreKeptAndNeverReturned) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const std::vector<RecordInfo> infos = FillWithChain(rig);
  {
    StoreRig other(directory.Path("cache"));
    other.options.fingerprint = testing::NumberKey("another model", 0);
    const auto store = other.Open();
    for (const RecordInfo& info : infos) {
      EXPECT_FALSE(store->Contains(info.key));
      EXPECT_EQ(other.Read(*store, info), ReadOutcome::kMiss);
    }
    EXPECT_TRUE(store->Children(infos[0].key, RecordKind::kBlock, 10).empty());
    EXPECT_EQ(store->Stats().foreign_records, 6);
    // The same key under the other fingerprint is another record.
    RecordInfo same = infos[0];
    same.fingerprint = other.options.fingerprint;
    other.Put(*store, same);
    store->Flush();
    EXPECT_EQ(other.Read(*store, same), ReadOutcome::kHit);
  }
  const auto store = rig.Open();
  for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kHit);
  EXPECT_EQ(store->Stats().foreign_records, 1);
  EXPECT_EQ(store->Stats().records_damaged, 0);
}

void SetSegmentVersion(const std::string& path, uint32_t version) {
  std::string bytes = ReadBytes(path);
  const SegmentHeaderBytes header =
      EncodeSegmentHeader({.version = version, .number = 1, .created_us = 1});
  std::copy_n(reinterpret_cast<const char*>(header.data()), 64, bytes.begin());
  WriteBytes(path, bytes);
}

TEST(BlockStoreOpen, ANewerVersionIsRefusedUntouched) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  FillWithChain(rig);
  const std::string path = directory.Path("cache/segment-00000001.mks");
  SetSegmentVersion(path, kStoreFormatVersion + 1);
  const std::string before = ReadBytes(path);
  ExpectSays(rig.OpenError(),
             {path, "newer version", "format 2", "choose another cache directory"});
  EXPECT_EQ(ReadBytes(path), before);
}

TEST(BlockStoreOpen, AnOlderVersionsRecordsAreCountedAndRemovedOnce) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const std::vector<RecordInfo> infos = FillWithChain(rig);
  const std::string path = directory.Path("cache/segment-00000001.mks");
  SetSegmentVersion(path, kStoreFormatVersion - 1);
  {
    const auto store = rig.Open();
    EXPECT_EQ(store->Stats().records_damaged, 6);
    EXPECT_FALSE(std::filesystem::exists(path));
    for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kMiss);
    rig.Put(*store, infos[0]);
  }
  const auto store = rig.Open();
  EXPECT_EQ(store->Stats().records_damaged, 0);
  EXPECT_EQ(rig.Read(*store, infos[0]), ReadOutcome::kHit);
}

TEST(BlockStoreOpen, SomebodyElsesFilesAreRefusedByName) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  FillWithChain(rig);
  for (const std::string name : {"segment-00000001.mks", "index.sqlite", "lock"}) {
    const std::string path = directory.Path("cache/" + name);
    ASSERT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
    ExpectSays(rig.OpenError(), {path, "belongs to user 65534"});
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  ASSERT_EQ(::chown(rig.options.directory.c_str(), kNobody, kNobody), 0);
  ExpectSays(rig.OpenError(), {rig.options.directory, "belongs to user 65534", "as user 0"});
}

TEST(BlockStoreOpen, ADirectoryThatOthersMayWriteToIsRefused) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  FillWithChain(rig);
  std::filesystem::permissions(rig.options.directory, std::filesystem::perms::others_write,
                               std::filesystem::perm_options::add);
  ExpectSays(rig.OpenError(), {rig.options.directory, "other users may write", "chmod 700"});
}

TEST(BlockStoreOpen, PlantedSymbolicLinksAreRefused) {
  const TempDirectory directory;
  directory.Write("victim", "must not change");
  StoreRig rig(directory.Path("cache"));
  FillWithChain(rig);
  for (const std::string name : {"segment-00000001.mks", "index.sqlite", "lock",
                                 "segment-00000077.mks", "index.sqlite-wal", "stranger"}) {
    const std::string path = directory.Path("cache/" + name);
    const std::string aside = directory.Path("aside");
    const bool existed = std::filesystem::exists(path);
    if (existed) std::filesystem::rename(path, aside);
    std::filesystem::create_symlink(directory.Path("victim"), path);
    ExpectSays(rig.OpenError(), {path, "symbolic link", "remove it"});
    std::filesystem::remove(path);
    if (existed) std::filesystem::rename(aside, path);
  }
  EXPECT_EQ(ReadBytes(directory.Path("victim")), "must not change");
  std::filesystem::create_directory_symlink(rig.options.directory, directory.Path("link"));
  StoreRig linked(directory.Path("link"));
  ExpectSays(linked.OpenError(), {directory.Path("link"), "is a symbolic link"});
  const auto store = rig.Open();
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
}

TEST(BlockStoreOpen, ALostIndexIsMadeAgainFromTheSegments) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const std::vector<RecordInfo> infos = FillWithChain(rig);
  ASSERT_TRUE(std::filesystem::remove(directory.Path("cache/index.sqlite")));
  const auto store = rig.Open();
  EXPECT_EQ(store->Stats().records_recovered, 6);
  EXPECT_EQ(store->Stats().records_damaged, 0);
  for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kHit);
}

TEST(BlockStoreOpen, AnIndexOlderThanTheSegmentsIsBroughtUpToDate) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    rig.Put(*store, BlockOf(1, 0));
  }
  const std::string old = ReadBytes(directory.Path("cache/index.sqlite"));
  {
    const auto store = rig.Open();
    rig.Put(*store, BlockOf(1, 1));
    rig.Put(*store, BlockOf(1, 2));
  }
  WriteBytes(directory.Path("cache/index.sqlite"), old);
  const auto store = rig.Open();
  EXPECT_EQ(store->Stats().records_recovered, 2);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(rig.Read(*store, BlockOf(1, i)), ReadOutcome::kHit);
}

TEST(BlockStoreOpen, ForeignTablesInTheIndexAreThrownAway) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const std::vector<RecordInfo> infos = FillWithChain(rig);
  WriteBytes(directory.Path("cache/index.sqlite"), "this is no database, and long enough for one");
  const auto store = rig.Open();
  EXPECT_EQ(store->Stats().index_rebuilds, 1);
  for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kHit);
}

TEST(BlockStoreOpen, ATailTornAtAnyByteLosesOnlyTheLastRecord) {
  const MemoryDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    rig.Put(*store, BlockOf(1, 0));
    rig.Put(*store, SnapshotOf(1, 0, 0, {.payload_bytes = 100}));
  }
  const std::string path = directory.Path("cache/segment-00000001.mks");
  const std::string whole = ReadBytes(path);
  const int64_t last = RecordBytes(0, 100);
  const int64_t begin = static_cast<int64_t>(whole.size()) - last;
  for (int64_t kept = 0; kept <= last; ++kept) {
    SCOPED_TRACE("bytes kept: " + std::to_string(kept));
    std::filesystem::remove_all(rig.options.directory);
    std::filesystem::create_directory(rig.options.directory);
    WriteBytes(path, whole.substr(0, static_cast<size_t>(begin + kept)));
    std::filesystem::permissions(rig.options.directory, std::filesystem::perms::owner_all);
    const auto store = rig.Open();
    ASSERT_TRUE(store);
    EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
    EXPECT_EQ(rig.Read(*store, SnapshotOf(1, 0, 0, {.payload_bytes = 100})),
              kept == last ? ReadOutcome::kHit : ReadOutcome::kMiss);
    EXPECT_EQ(store->Stats().records_damaged, kept == 0 || kept == last ? 0 : 1);
    // What is written next is whole and stays so.
    rig.Put(*store, BlockOf(1, 1));
    store->Flush();
    EXPECT_EQ(rig.Read(*store, BlockOf(1, 1)), ReadOutcome::kHit);
  }
}

TEST(BlockStoreOpen, ASmallerBudgetHoldsAtOnce) {
  const MemoryDirectory directory;
  StoreRig rig(directory.Path("cache"));
  {
    const auto store = rig.Open();
    for (int64_t i = 0; i < 40; ++i) rig.Put(*store, BlockOf(i, 0, {.payload_bytes = 100000}));
    store->Flush();
    ASSERT_GT(store->Stats().disk_bytes, 4000000);
  }
  rig.options.budget_bytes = 1500000;
  const auto store = rig.Open();
  EXPECT_LE(store->Stats().disk_bytes, 1500000);
  EXPECT_GT(store->Stats().block_records, 8);
  EXPECT_EQ(rig.Read(*store, BlockOf(39, 0, {.payload_bytes = 100000})), ReadOutcome::kHit);
}

TEST(BlockStoreOpen, RecordsThatMovedToAnotherNameAreDropped) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  const std::vector<RecordInfo> infos = FillWithChain(rig);
  std::filesystem::rename(directory.Path("cache/segment-00000001.mks"),
                          directory.Path("cache/segment-00000002.mks"));
  const auto store = rig.Open();
  for (const RecordInfo& info : infos) EXPECT_EQ(rig.Read(*store, info), ReadOutcome::kMiss);
  EXPECT_EQ(store->Stats().records_damaged,
            7);  // six rows without a file, a file under a wrong name
}

}  // namespace
}  // namespace minke
