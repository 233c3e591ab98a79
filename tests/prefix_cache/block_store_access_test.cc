// Directories that cannot be used as they are: without rights, without an index, without anything
// in them. Serving goes on, and nothing that may be sound is removed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prefix_cache/block_store.h"
#include "tests/prefix_cache/store_rig.h"
#include "tests/support/faulty_storage.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::Fault;
using testing::FaultyStorage;
using testing::kNobody;
using testing::ReadBytes;
using testing::StoreRig;
using testing::TempDirectory;

void FillAt(const std::string& directory) {
  StoreRig rig(directory);
  const auto store = rig.Open();
  ASSERT_TRUE(store);
  for (int64_t i = 0; i < 5; ++i) rig.Put(*store, BlockOf(1, i));
}

// What a store that the disk refused says and does. Empty if all is as it should be.
std::string LooksOff(StoreRig& rig) {
  const auto opened = BlockStore::Open(rig.options);
  if (!opened) return "was refused: " + opened.error().message;
  BlockStore& store = **opened;
  rig.Put(store, BlockOf(2, 0));
  store.Flush();
  store.Touch(std::vector<CacheKey>{BlockOf(1, 0).key});
  const StoreStats stats = store.Stats();
  if (stats.enabled) return "is enabled";
  if (stats.io_errors != 1) return "counts " + std::to_string(stats.io_errors) + " errors";
  if (stats.index_rebuilds != 0) return "made the index again";
  for (const std::string& part : {rig.options.directory, std::string("is not used")}) {
    if (stats.warning.find(part) == std::string::npos) return "warns: " + stats.warning;
  }
  if (store.Contains(BlockOf(1, 0).key)) return "has a record";
  if (rig.Read(store, BlockOf(1, 0)) != ReadOutcome::kOff) return "reads";
  const auto freed = store.Gc();
  if (freed || freed.error().message != stats.warning) return "frees";
  return "";
}

TEST(BlockStoreAccess, AReadOnlyFileSystemSwitchesTheTierOff) {
  const TempDirectory directory;
  FillAt(directory.Path("cache"));
  const std::string index = ReadBytes(directory.Path("cache/index.sqlite"));
  FaultyStorage read_only(Fault::kReadOnly, 0, false);
  StoreRig rig(directory.Path("cache"));
  rig.options.system = &read_only;
  EXPECT_EQ(LooksOff(rig), "");
  EXPECT_GT(read_only.failures(), 0);
  EXPECT_EQ(ReadBytes(directory.Path("cache/index.sqlite")), index);
  rig.options.system = nullptr;
  const auto store = rig.Open();
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kHit);
}

void SetMode(const std::string& path, mode_t mode) {
  ASSERT_EQ(::chmod(path.c_str(), mode), 0) << path;
}

// Rights do not bind root, so another user opens the store, in a process of its own. Says on
// stderr what went wrong.
int AsNobody(const std::string& directory) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) ::_exit(2);
    StoreRig rig(directory);
    const std::string wrong = LooksOff(rig);
    std::fprintf(stderr, "%s", wrong.empty() ? "" : (wrong + "\n").c_str());
    ::_exit(wrong.empty() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(BlockStoreAccess, MissingRightsSwitchTheTierOffAndRemoveNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const TempDirectory directory;
  const std::string cache = directory.Path("cache");
  FillAt(cache);
  SetMode(directory.Path(""), 0711);
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(cache)) {
    files.push_back(entry.path().string());
  }
  ASSERT_EQ(files.size(), 3U);  // lock, index, segment
  for (const std::string& path : files) ASSERT_EQ(::chown(path.c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(::chown(cache.c_str(), kNobody, kNobody), 0);
  const std::string index = ReadBytes(cache + "/index.sqlite");
  struct Rights {
    mode_t directory;
    mode_t files;
  };
  for (const Rights& rights : {Rights{0500, 0600}, Rights{0500, 0400}, Rights{0700, 0400},
                               Rights{0700, 0000}, Rights{0300, 0600}, Rights{0000, 0600}}) {
    SCOPED_TRACE(::testing::Message() << std::oct << rights.directory << " " << rights.files);
    for (const std::string& path : files) SetMode(path, rights.files);
    SetMode(cache, rights.directory);
    EXPECT_EQ(AsNobody(cache), 0);
    SetMode(cache, 0700);
    EXPECT_EQ(ReadBytes(cache + "/index.sqlite"), index);
  }
  for (const std::string& path : files) SetMode(path, 0600);
  SetMode(cache + "/segment-00000001.mks", 0000);
  EXPECT_EQ(AsNobody(cache), 0);
  EXPECT_EQ(ReadBytes(cache + "/index.sqlite"), index);
}

TEST(BlockStoreAccess, AProcessWithoutDescriptorsKeepsTheIndex) {
  const TempDirectory directory;
  FillAt(directory.Path("cache"));
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int off = 0;
  bool enabled = false;
  for (rlim_t limit = 3; limit < 40 && !enabled; ++limit) {
    SCOPED_TRACE(limit);
    StoreRig rig(directory.Path("cache"));
    rlimit tight = before;
    tight.rlim_cur = limit;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
    auto opened = BlockStore::Open(rig.options);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_TRUE(opened) << opened.error().message;
    const StoreStats stats = (*opened)->Stats();
    enabled = stats.enabled;
    off += enabled ? 0 : 1;
    EXPECT_EQ(stats.index_rebuilds, 0);
  }
  EXPECT_GT(off, 2);
  EXPECT_TRUE(enabled);
}

TEST(BlockStoreAccess, LookingIntoADirectoryWithoutRecordsFindsNothing) {
  const TempDirectory directory;
  const std::string cache = directory.Path("cache");
  std::filesystem::create_directory(cache);
  SetMode(cache, 0700);
  StoreRig rig(cache);
  rig.options.read_only = true;
  for (const char* bytes : {"", "an index it is not, and there is nothing else"}) {
    const auto store = rig.Open();
    ASSERT_TRUE(store);
    EXPECT_EQ(store->Stats().segments, 0);
    EXPECT_EQ(store->Stats().block_records, 0);
    EXPECT_TRUE(store->List(std::nullopt, 10)->empty());
    EXPECT_EQ(store->Verify(false, nullptr)->records_checked, 0);
    EXPECT_EQ(rig.Read(*store, BlockOf(1, 0)), ReadOutcome::kMiss);
    std::ofstream(cache + "/index.sqlite") << bytes;
  }
}

TEST(BlockStoreAccess, LookingWithoutAnIndexSaysWhoMakesIt) {
  const TempDirectory directory;
  const std::string cache = directory.Path("cache");
  FillAt(cache);
  StoreRig rig(cache);
  rig.options.read_only = true;
  const std::string way_out = "the next `minke generate --kv-disk " + cache +
                              "` or `minke cache gc --kv-disk " + cache + "` makes it again";
  const auto says = [&](const std::string& why) {
    const std::string message = rig.OpenError();
    EXPECT_NE(message.find(cache + "/index.sqlite cannot be used: " + why), std::string::npos)
        << message;
    EXPECT_NE(message.find(way_out), std::string::npos) << message;
  };
  std::filesystem::remove(cache + "/index.sqlite");
  says("it is missing");
  std::ofstream(cache + "/index.sqlite") << "";
  says("its tables are not those of this version");
  std::ofstream(cache + "/index.sqlite") << std::string(5000, 'x');
  says("file is not a database");
  rig.options.read_only = false;
  { const auto store = rig.Open(); }
  rig.options.read_only = true;
  EXPECT_EQ(rig.Open()->List(std::nullopt, 10)->size(), 5U);
}

TEST(BlockStoreAccess, ABudgetThatHoldsNothingIsRefused) {
  const TempDirectory directory;
  StoreRig rig(directory.Path("cache"));
  rig.options.budget_bytes = kStoreBudgetBytesMin - 1;
  const std::string message = rig.OpenError();
  EXPECT_NE(message.find("at least 1048576 bytes"), std::string::npos) << message;
  EXPECT_FALSE(std::filesystem::exists(directory.Path("cache")));
  rig.options.budget_bytes = kStoreBudgetBytesMin;
  const auto store = rig.Open();
  rig.Put(*store, BlockOf(1, 0, {.payload_bytes = 113920}));
  store->Flush();
  EXPECT_EQ(rig.Read(*store, BlockOf(1, 0, {.payload_bytes = 113920})), ReadOutcome::kHit);
}

}  // namespace
}  // namespace minke
