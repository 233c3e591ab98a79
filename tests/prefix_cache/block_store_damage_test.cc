// Damage of every kind in every file: each is harmless or found, no byte is ever wrong, and what
// was found is found once.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/prefix_cache/store_rig.h"
#include "tests/support/resident_memory.h"

namespace minke {
namespace {

using testing::BlockOf;
using testing::MemoryDirectory;
using testing::SnapshotOf;
using testing::StoreRig;

constexpr uint32_t kSeed = 417;
// Of whole directories; segment_file_test.cc and record_format_test.cc flip every bit of records.
constexpr int kDamages = testing::kSanitized ? 1000 : 10000;
constexpr int kSecondLooks = 8;  // one damage in so many is also looked at a second time

using Files = std::map<std::string, std::string>;

Files ReadFiles(const std::string& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream stream(entry.path(), std::ios::binary);
    files[entry.path().filename()] =
        std::string(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return files;
}

void WriteFiles(const std::string& directory, const Files& files) {
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::filesystem::permissions(directory, std::filesystem::perms::owner_all);
  for (const auto& [name, bytes] : files) {
    std::ofstream stream(directory + "/" + name, std::ios::binary);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(stream.good()) << name;
  }
}

std::vector<RecordInfo> Records() {
  std::vector<RecordInfo> infos;
  for (int64_t chain = 0; chain < 2; ++chain) {
    for (int64_t i = 0; i < 3; ++i) infos.push_back(BlockOf(chain, i, {.payload_bytes = 200}));
    infos.push_back(SnapshotOf(chain, 2, 7, {.payload_bytes = 333}));
  }
  return infos;
}

// A directory as a process leaves it that is killed (with the index's log), or that ends.
Files MakeDirectory(const std::string& path, bool killed) {
  StoreRig rig(path);
  rig.options.segment_bytes = 4096 + 5000;
  Files files;
  {
    const auto store = rig.Open();
    for (const RecordInfo& info : Records()) rig.Put(*store, info);
    store->Flush();
    if (killed) files = ReadFiles(path);
  }
  if (!killed) files = ReadFiles(path);
  files.erase("index.sqlite-shm");  // made anew by whoever opens the index first
  return files;
}

// One bit flipped, one end cut off, or one stretch zeroed, somewhere in one of the files.
std::string Damage(Files* files, std::mt19937& random) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : *files) {
    if (!bytes.empty()) names.push_back(name);
  }
  const std::string name = names[random() % names.size()];
  std::string& bytes = (*files)[name];
  const size_t at = random() % bytes.size();
  const uint32_t kind = random() % 10;
  if (kind < 8) {
    const uint32_t bit = random() % 8;
    bytes[at] = static_cast<char>(static_cast<uint8_t>(bytes[at]) ^ (1U << bit));
    return name + " bit " + std::to_string(bit) + " of byte " + std::to_string(at);
  }
  if (kind == 8) {
    bytes.resize(at);
    return name + " cut to " + std::to_string(at);
  }
  const size_t count = std::min(bytes.size() - at, size_t{1} + random() % 5000);
  bytes.replace(at, count, count, '\0');
  return name + " zeros at " + std::to_string(at) + ", " + std::to_string(count);
}

struct Tally {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t found = 0;    // damages that were counted, or that made the index be made again
  int64_t refused = 0;  // directories that were not opened, with a message
};

void OpenAndRead(const std::string& directory, bool second_look, Tally* tally) {
  StoreRig rig(directory, 4096);
  rig.options.segment_bytes = 4096 + 5000;
  auto opened = BlockStore::Open(rig.options);
  if (!opened) {
    ADD_FAILURE() << opened.error().message;
    return;
  }
  for (const RecordInfo& info : Records()) {
    const ReadOutcome outcome = rig.Read(**opened, info);  // compares every byte
    ++(outcome == ReadOutcome::kHit ? tally->hits : tally->misses);
  }
  const StoreStats stats = (*opened)->Stats();
  EXPECT_TRUE(stats.enabled) << stats.warning;
  if (stats.records_damaged > 0 || stats.index_rebuilds > 0) ++tally->found;
  if (!second_look) return;
  opened->reset();
  const auto again = rig.Open();
  ASSERT_TRUE(again);
  for (const RecordInfo& info : Records()) {
    EXPECT_NE(rig.Read(*again, info), ReadOutcome::kDamaged) << "found a second time";
  }
  EXPECT_EQ(again->Stats().records_damaged, 0);
  EXPECT_EQ(again->Stats().index_rebuilds, 0);
}

class BlockStoreDamage : public ::testing::TestWithParam<bool> {};

TEST_P(BlockStoreDamage, IsHarmlessOrFoundAndFoundOnce) {
  const MemoryDirectory directory;
  const Files sound = MakeDirectory(directory.Path("sound"), GetParam());
  ASSERT_EQ(sound.count("segment-00000002.mks"), 1U);
  ASSERT_EQ(sound.count("index.sqlite-wal"), GetParam() ? 1U : 0U);
  const std::string path = directory.Path("cache");
  Tally whole;
  WriteFiles(path, sound);
  OpenAndRead(path, true, &whole);
  ASSERT_EQ(whole.misses, 0);
  ASSERT_EQ(whole.found, 0);
  std::mt19937 random(kSeed);
  Tally tally;
  for (int i = 0; i < kDamages / 2 && !HasFailure(); ++i) {
    Files damaged = sound;
    const std::string what = Damage(&damaged, random);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", damage " + std::to_string(i) + ": " + what);
    WriteFiles(path, damaged);
    OpenAndRead(path, i % kSecondLooks == 0, &tally);
  }
  std::printf("%d damages: %lld hits, %lld misses, %lld found\n", kDamages / 2,
              static_cast<long long>(tally.hits), static_cast<long long>(tally.misses),
              static_cast<long long>(tally.found));
  EXPECT_GT(tally.found, kDamages / 20);
  EXPECT_GT(tally.misses, kDamages / 40);
  EXPECT_GT(tally.hits, kDamages);
}

std::string StateName(const ::testing::TestParamInfo<bool>& info) {
  return info.param ? "AfterAKill" : "AfterAnEnd";
}

INSTANTIATE_TEST_SUITE_P(All, BlockStoreDamage, ::testing::Values(true, false), StateName);

}  // namespace
}  // namespace minke
