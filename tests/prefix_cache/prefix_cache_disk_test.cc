// The prefix cache with a disk below it: what a restart finds, and what damage costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "prefix_cache/block_store.h"
#include "prefix_cache/prefix_cache.h"
#include "tests/prefix_cache/cache_rig.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

const CacheKey kModel = TenantKey("model");
const CacheKey kOtherModel = TenantKey("other_model");

struct DiskRig {
  explicit DiskRig(const std::string& directory, CacheKey fingerprint = kModel,
                   int64_t rows_budget = kRigAmple, int64_t snapshots_budget = kRigAmple) {
    StoreOptions options;
    options.directory = directory;
    options.fingerprint = fingerprint;
    Result<std::unique_ptr<BlockStore>> opened = BlockStore::Open(options);
    if (!opened) {
      ADD_FAILURE() << opened.error().message;
      return;
    }
    store = std::move(*opened);
    rig = std::make_unique<CacheRig>(rows_budget, snapshots_budget, store.get(), fingerprint);
  }
  // The store writes until its end, and the blocks it holds are the pool's.
  ~DiskRig() {
    if (store != nullptr) store->Flush();
    store.reset();
  }
  CacheMatch Find(const CacheChain& chain, int64_t limit = INT64_MAX) const {
    return rig->Find(chain, limit);
  }

  std::unique_ptr<CacheRig> rig;
  std::unique_ptr<BlockStore> store;
};

// Flips one bit of the only place in the directory's segments where `bytes` stand.
void Damage(const std::string& directory, std::span<const std::byte> bytes) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::string content{std::istreambuf_iterator<char>(file), {}};
    const std::string wanted(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const size_t at = content.find(wanted);
    if (at == std::string::npos) continue;
    ++found;
    file.clear();
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(content[at] ^ 1));
  }
  ASSERT_EQ(found, 1);
}

void DamageBlock(const std::string& directory, const CacheChain& chain, int64_t tokens) {
  std::vector<std::byte> bytes(kRigBlockBytes);
  Fill(bytes, ChainHash(chain, tokens));
  Damage(directory, bytes);
}

void DamageSnapshot(const std::string& directory, const CacheChain& chain, int64_t tokens) {
  std::vector<std::byte> bytes(kRigSnapshotBytes);
  Fill(bytes, ~ChainHash(chain, tokens));
  Damage(directory, bytes);
}

TEST(PrefixCacheDisk, ARestartFindsEverything) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 700);
  const Tokens next_turn = prompt + Text(2, 300);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(prompt));
  }
  DiskRig after(directory.path());
  const CacheExplanation told = after.rig->cache.Explain(Chain(next_turn), 1000);
  EXPECT_EQ(told.ram_tokens, 0);
  EXPECT_EQ(told.disk_tokens, 640);
  EXPECT_EQ(told.snapshot_tokens, 700);
  EXPECT_EQ(told.snapshot_tier, CacheTier::kDisk);
  EXPECT_EQ(told.reason, MissReason::kNone);
  EXPECT_EQ(after.rig->cache.Stats().blocks, 0);
  EXPECT_EQ(Summary(after.Find(Chain(next_turn))),
            "5 blocks (5 from disk), snapshot 700 disk, none");
  EXPECT_EQ(Summary(after.Find(Chain(next_turn))), "5 blocks, snapshot 700 ram, none");
  EXPECT_EQ(after.rig->cache.Stats().disk_hit_tokens, 700);
  EXPECT_EQ(after.rig->Problem(), "");
}

TEST(PrefixCacheDisk, EveryLengthComesBack) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 300);
  {
    DiskRig before(directory.path());
    for (int64_t length = 1; length <= 300; length += 13) {
      before.rig->Run(Chain(First(prompt, length)));
    }
  }
  for (const bool dropped : {true, false}) {
    DiskRig after(directory.path());
    for (int64_t length = 300; length > 0; --length) {
      if (dropped) after.rig->cache.DropMemory();
      const CacheMatch match = after.Find(Chain(prompt), length);
      EXPECT_EQ(static_cast<int64_t>(match.blocks.size()), length / kCacheBlockTokens);
      EXPECT_EQ(match.snapshot_tokens, (length - 1) / 13 * 13 + 1);
    }
  }
}

TEST(PrefixCacheDisk, WhatMemoryEvictedComesFromDisk) {
  const TempDirectory directory;
  DiskRig disk(directory.path(), kModel, 5 * kRigEntryBytes + kCacheNodeBytes,
               2 * kRigSnapshotBytes);
  for (int32_t seed = 0; seed < 30; ++seed) {
    disk.rig->Run(Chain(Text(seed, 300)));
  }
  EXPECT_GT(disk.rig->cache.Stats().blocks_evicted, 50);
  for (int32_t seed = 0; seed < 30; ++seed) {
    const Tokens prompt = Text(seed, 300);
    const CacheMatch match = disk.Find(Chain(prompt));
    EXPECT_EQ(match.blocks.size(), 2u);
    EXPECT_EQ(match.snapshot_tokens, 300);
    EXPECT_EQ(match.reason, MissReason::kNone);
    EXPECT_EQ(disk.rig->Problem(), "");
  }
}

TEST(PrefixCacheDisk, AChainThatDoesNotFitIsCutAndSaysSo) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 700);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(prompt));
  }
  DiskRig after(directory.path(), kModel, 3 * kRigEntryBytes + kCacheNodeBytes);
  EXPECT_EQ(Summary(after.Find(Chain(prompt))), "3 blocks (3 from disk), no_room");
  EXPECT_EQ(after.rig->cache.Stats().blocks_evicted, 0);
  EXPECT_EQ(after.rig->Problem(), "");
}

TEST(PrefixCacheDisk, NoRoomForASnapshotSaysSo) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 300);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(prompt));
  }
  DiskRig after(directory.path(), kModel, kRigAmple, 0);
  EXPECT_EQ(Summary(after.Find(Chain(prompt))), "2 blocks (2 from disk), no_room");
}

TEST(PrefixCacheDisk, ADamagedBlockEndsTheMatchOnce) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 700);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(prompt));
  }
  DamageBlock(directory.path(), Chain(prompt), 384);
  DiskRig after(directory.path());
  EXPECT_EQ(Summary(after.Find(Chain(prompt))), "2 blocks (2 from disk), damaged");
  EXPECT_EQ(after.store->Stats().records_damaged, 1);
  after.rig->cache.DropMemory();
  after.store->Flush();
  EXPECT_NE(after.Find(Chain(prompt)).reason, MissReason::kDamaged);
  EXPECT_EQ(after.store->Stats().records_damaged, 1);
  // Computed again, it is written again, and the blocks behind it are of use again.
  after.rig->Run(Chain(prompt));
  after.rig->cache.DropMemory();
  EXPECT_EQ(Summary(after.Find(Chain(prompt))), "5 blocks (5 from disk), snapshot 700 disk, none");
}

TEST(PrefixCacheDisk, ADamagedSnapshotFallsBackToTheOneBefore) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 700);
  {
    DiskRig before(directory.path());
    for (const int64_t length : {200, 650, 700}) {
      before.rig->Run(Chain(First(prompt, length)));
    }
  }
  DamageSnapshot(directory.path(), Chain(prompt), 700);
  DamageSnapshot(directory.path(), Chain(prompt), 650);
  DiskRig after(directory.path());
  EXPECT_EQ(Summary(after.Find(Chain(prompt))),
            "5 blocks (5 from disk), snapshot 200 disk, damaged");
  EXPECT_EQ(after.store->Stats().records_damaged, 2);
  EXPECT_EQ(Summary(after.Find(Chain(prompt))), "5 blocks, snapshot 200 ram, none");
  EXPECT_EQ(after.rig->Problem(), "");
}

// A disk that loses the end of a file: what lay there is removed when the store is opened, before
// anybody asks for it.
TEST(PrefixCacheDisk, ASegmentCutShortIsToldAsDamageToThePromptThatNeedsIt) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 700);
  const Tokens beginning = First(prompt, 200);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(beginning));
    before.rig->Run(Chain(prompt));
  }
  const std::string segment = directory.Path("segment-00000001.mks");
  const auto size = std::filesystem::file_size(segment);
  std::filesystem::resize_file(segment, size - 1);  // the snapshot of 700
  {
    DiskRig after(directory.path());
    EXPECT_EQ(after.store->Stats().records_damaged, 1);
    // It is told to nobody else, and explaining is not telling.
    EXPECT_EQ(after.Find(Chain(beginning)).reason, MissReason::kNone);
    EXPECT_EQ(after.Find(Chain(First(prompt, 650))).reason, MissReason::kNone);
    EXPECT_EQ(after.rig->cache.Explain(Chain(prompt), 700).reason, MissReason::kDamaged);
    EXPECT_EQ(Summary(after.Find(Chain(prompt))), "5 blocks, snapshot 200 ram, damaged");
    EXPECT_EQ(Summary(after.Find(Chain(prompt))), "5 blocks, snapshot 200 ram, none");
  }
  std::filesystem::resize_file(segment, size * 2 / 3);
  DiskRig after(directory.path());
  EXPECT_GE(after.store->Stats().records_damaged, 2);
  const CacheMatch match = after.Find(Chain(prompt));
  EXPECT_EQ(match.reason, MissReason::kDamaged);
  EXPECT_GT(match.blocks.size(), 0U);
  EXPECT_LT(match.blocks.size(), 5U);
  // Computed again, it is written again, and known to be.
  after.rig->Run(Chain(prompt));
  after.rig->cache.DropMemory();
  EXPECT_EQ(Summary(after.Find(Chain(prompt))), "5 blocks (5 from disk), snapshot 700 disk, none");
}

TEST(PrefixCacheDisk, ALookThatFindsASnapshotCutShortSaysDamaged) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 300);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(prompt));
  }
  const std::string segment = directory.Path("segment-00000001.mks");
  std::filesystem::resize_file(segment, std::filesystem::file_size(segment) - 400);
  StoreOptions options;
  options.directory = directory.path();
  options.fingerprint = kModel;
  options.read_only = true;
  const auto store = BlockStore::Open(options);
  ASSERT_TRUE(store) << store.error().message;
  const CacheRig rig(kRigAmple, kRigAmple, store->get(), kModel);
  EXPECT_EQ(rig.cache.Explain(Chain(prompt), 300).reason, MissReason::kDamaged);
}

TEST(PrefixCacheDisk, OtherTenantsAndModelsAreToldApart) {
  const TempDirectory directory;
  const Tokens prompt = Text(1, 300);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(prompt));
  }
  {
    DiskRig same(directory.path());
    EXPECT_EQ(Summary(same.Find(Chain(prompt, "bob"))), "0 blocks, other_tenant");
  }
  DiskRig other(directory.path(), kOtherModel);
  EXPECT_EQ(Summary(other.Find(Chain(prompt))), "0 blocks, other_model");
  EXPECT_EQ(Summary(other.Find(Chain(Text(2, 300)))), "0 blocks, cold");
  other.rig->Run(Chain(prompt));
  other.rig->cache.DropMemory();
  EXPECT_EQ(other.Find(Chain(prompt)).snapshot_tokens, 300);
}

TEST(PrefixCacheDisk, TheFirstDifferenceIsExactOnDiskToo) {
  const TempDirectory directory;
  const Tokens known = Text(1, 300);
  {
    DiskRig before(directory.path());
    before.rig->Run(Chain(known));
  }
  for (const int64_t edited : {1, 127, 128, 200, 256, 299}) {
    DiskRig after(directory.path());
    Tokens prompt = known + Text(2, 100);
    prompt[static_cast<size_t>(edited)] = -7;
    const CacheExplanation told = after.rig->cache.Explain(Chain(prompt), 400);
    EXPECT_EQ(told.reason, MissReason::kDiverged);
    EXPECT_EQ(told.first_difference, edited);
    const CacheMatch match = after.Find(Chain(prompt));
    EXPECT_EQ(match.reason, MissReason::kDiverged);
    EXPECT_EQ(match.first_difference, edited);
  }
}

TEST(PrefixCacheDisk, OneOfManySnapshotsBelowABlockIsFound) {
  const TempDirectory directory;
  const Tokens common = Text(1, 140);  // a system prompt: all conversations begin with it
  constexpr int32_t kConversations = 150;
  {
    DiskRig before(directory.path());
    for (int32_t seed = 2; seed < kConversations; ++seed) {
      before.rig->Run(Chain(common + Text(seed, 60)));
    }
  }
  DiskRig after(directory.path());
  for (int32_t seed = 2; seed < kConversations; ++seed) {
    EXPECT_EQ(after.Find(Chain(common + Text(seed, 90))).snapshot_tokens, 200) << seed;
  }
}

TEST(PrefixCacheDisk, AVanishedDirectoryCostsOnlyTheTier) {
  TempDirectory directory;
  DiskRig disk(directory.Path("cache"));
  const Tokens a = Text(1, 300);
  const Tokens b = Text(2, 300);
  disk.rig->Run(Chain(a));
  disk.store->Flush();
  std::filesystem::remove_all(directory.Path("cache"));
  EXPECT_EQ(disk.Find(Chain(a)).snapshot_tokens, 300);
  disk.rig->Run(Chain(b));
  disk.store->Flush();
  EXPECT_EQ(disk.Find(Chain(b)).snapshot_tokens, 300);
  disk.rig->cache.DropMemory();
  for (int round = 0; round < 3; ++round) {
    disk.Find(Chain(a));
    disk.Find(Chain(b));
    EXPECT_EQ(disk.rig->Problem(), "");
  }
}

TEST(PrefixCacheDisk, AFewSnapshotsOfBudgetAreEnoughForManyChains) {
  const TempDirectory directory;
  DiskRig disk(directory.path(), kModel, kRigAmple, kRigSnapshotBytes);
  for (int32_t seed = 0; seed < 20; ++seed) {
    const Tokens prompt = Text(seed, 130);
    disk.rig->Run(Chain(prompt));
    EXPECT_EQ(disk.Find(Chain(prompt)).snapshot_tokens, 130);
  }
}

}  // namespace
}  // namespace minke::testing
