// The prefix cache in memory: hits, sharing, eviction, pins, accounting.
#include "prefix_cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/prefix_cache/cache_rig.h"

namespace minke::testing {
namespace {

TEST(PrefixCache, EveryLengthHitsToItsEnd) {
  for (int64_t length = 1; length <= 3 * kCacheBlockTokens + 1; ++length) {
    CacheRig rig;
    const Tokens known = Text(1, length);
    rig.Run(Chain(known));
    const Tokens longer = known + Text(2, 200);
    const CacheMatch match = rig.Find(Chain(longer));
    EXPECT_EQ(static_cast<int64_t>(match.blocks.size()), length / kCacheBlockTokens);
    EXPECT_EQ(match.snapshot_tokens, length);
    EXPECT_EQ(match.reason, MissReason::kNone) << length << " " << Summary(match);
    EXPECT_EQ(rig.Find(Chain(known)).snapshot_tokens, length);
    // One token less than the snapshot has: the blocks are all that is left.
    const CacheMatch shorter = rig.Find(Chain(known), length - 1);
    EXPECT_EQ(static_cast<int64_t>(shorter.blocks.size()), (length - 1) / kCacheBlockTokens);
    EXPECT_EQ(shorter.snapshot_tokens, 0);
  }
}

TEST(PrefixCache, ARepeatHitsOneTokenBeforeItsEnd) {
  CacheRig rig;
  const Tokens prompt = Text(1, 600);
  const Tokens all_but_one = First(prompt, 599);
  rig.Insert(Chain(prompt));
  ASSERT_TRUE(rig.Snapshot(Chain(all_but_one)));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt), 599)), "4 blocks, snapshot 599 ram, none");
}

TEST(PrefixCache, APrefixIsHeldOnce) {
  CacheRig rig;
  const Tokens common = Text(1, 256);
  const Tokens a = common + Text(2, 128);
  const Tokens b = common + Text(3, 128);
  rig.Run(Chain(a));
  rig.Run(Chain(b));
  EXPECT_EQ(rig.cache.Stats().blocks, 4);
  EXPECT_EQ(rig.rows.usage().live_blocks, 4);
  const CacheMatch match_a = rig.Find(Chain(a));
  const CacheMatch match_b = rig.Find(Chain(b));
  ASSERT_EQ(match_a.blocks.size(), 3u);
  ASSERT_EQ(match_b.blocks.size(), 3u);
  EXPECT_TRUE(match_a.blocks[1].SameBlock(match_b.blocks[1]));
  EXPECT_FALSE(match_a.blocks[2].SameBlock(match_b.blocks[2]));
}

TEST(PrefixCache, BlocksThatAreKnownStay) {
  CacheRig rig;
  const Tokens prompt = Text(1, 256);
  rig.Insert(Chain(prompt));
  const BlockRef before = rig.Find(Chain(prompt)).blocks[0];
  rig.Insert(Chain(prompt));  // with memory of its own
  EXPECT_TRUE(rig.Find(Chain(prompt)).blocks[0].SameBlock(before));
  EXPECT_EQ(rig.rows.usage().live_blocks, 2);
}

TEST(PrefixCache, AnEditedLastTurnHitsTheTurnBefore) {
  CacheRig rig;
  const Tokens history = Text(1, 300);
  rig.Run(Chain(history));
  rig.Run(Chain(history + Text(2, 50)));
  const Tokens edited = history + Text(3, 70);
  EXPECT_EQ(Summary(rig.Find(Chain(edited))), "2 blocks, snapshot 300 ram, diverged at 300");
}

TEST(PrefixCache, TheDeepestOfManySnapshotsIsTaken) {
  CacheRig rig;
  const Tokens prompt = Text(1, 700);
  rig.Insert(Chain(prompt));
  for (const int64_t length : {700, 10, 640, 130, 255, 256, 257, 500}) {
    const Tokens part = First(prompt, length);
    ASSERT_TRUE(rig.Snapshot(Chain(part), length % kRigSnapshotBytes + 1));
  }
  const std::vector<std::pair<int64_t, int64_t>> expected = {
      {9, 0},     {10, 10},   {129, 10},  {130, 130}, {255, 255}, {256, 256},
      {257, 257}, {499, 257}, {500, 500}, {639, 500}, {699, 640}, {700, 700},
  };
  for (const auto& [limit, tokens] : expected) {
    const CacheMatch match = rig.Find(Chain(prompt), limit);
    EXPECT_EQ(match.snapshot_tokens, tokens) << limit;
    EXPECT_EQ(match.snapshot_bytes, tokens > 0 ? tokens % kRigSnapshotBytes + 1 : 0);
  }
}

TEST(PrefixCache, ASnapshotWithoutItsRowsIsDropped) {
  CacheRig rig;
  const Tokens prompt = Text(1, 300);
  rig.Insert(Chain(First(prompt, 128)));
  rig.Snapshot(Chain(prompt));
  EXPECT_EQ(rig.cache.Stats().snapshots, 0);
  EXPECT_EQ(rig.snapshots.usage().live_blocks, 0);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, AResentPromptOf600TokensHits) {  // serving.md 6.C 39
  CacheRig rig;
  const Tokens prompt = Text(1, 600);
  rig.Run(Chain(prompt));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "4 blocks, snapshot 600 ram, none");
}

TEST(PrefixCache, AFreshTailNeverSpoilsThePrefix) {  // serving.md 6.C 38
  CacheRig rig;
  const Tokens prefix = Text(1, 1000);
  rig.Run(Chain(prefix));
  for (const int64_t tail : {0, 437, 875, 1750}) {
    for (int32_t round = 0; round < 12; ++round) {
      const Tokens prompt = prefix + Text(1000 + round, tail);
      const CacheMatch match = rig.Run(Chain(prompt));
      EXPECT_GE(match.snapshot_tokens, 1000);
      EXPECT_GE(match.blocks.size(), 7u);
    }
  }
}

// ---- eviction ----

int64_t BudgetOfBlocks(int64_t blocks, int64_t roots = 1) {
  return blocks * kRigEntryBytes + roots * kCacheNodeBytes;
}

TEST(PrefixCache, TheOldestChainLosesItsEndFirst) {
  CacheRig rig(BudgetOfBlocks(6));
  const Tokens a = Text(1, 384);
  const Tokens b = Text(2, 384);
  rig.Insert(Chain(a));
  rig.Insert(Chain(b));
  rig.Insert(Chain(Text(3, 128)));
  EXPECT_EQ(Summary(rig.Find(Chain(a))), "2 blocks, evicted");
  EXPECT_EQ(Summary(rig.Find(Chain(b))), "3 blocks, none");
  // Both were looked up after the third came, so that one goes now, and then a's end again.
  rig.Insert(Chain(Text(4, 128)));
  EXPECT_EQ(Summary(rig.Find(Chain(Text(3, 128)))), "0 blocks, evicted");
  rig.Insert(Chain(Text(5, 128)));
  EXPECT_EQ(Summary(rig.Find(Chain(a))), "1 blocks, evicted");
  EXPECT_EQ(Summary(rig.Find(Chain(b))), "3 blocks, none");
  EXPECT_EQ(rig.cache.Stats().blocks, 6);
  EXPECT_EQ(rig.cache.Stats().blocks_evicted, 3);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, ASharedBeginningOutlivesItsBranches) {
  CacheRig rig(BudgetOfBlocks(4));
  const Tokens common = Text(1, 128);
  rig.Insert(Chain(common));
  for (int32_t branch = 2; branch < 20; ++branch) {
    const Tokens prompt = common + Text(branch, 128);
    ChainPin pin;
    const CacheMatch match = rig.cache.Lookup(Chain(prompt), 256, &pin);
    EXPECT_EQ(match.blocks.size(), 1u);
    rig.Insert(Chain(prompt), match.blocks, &pin);
  }
  EXPECT_EQ(rig.cache.Stats().blocks, 4);
}

TEST(PrefixCache, ANewEntryIsNeverItsOwnVictim) {
  // The running sequence holds five blocks, and there is room for the entries of three.
  CacheRig rig(5 * kRigBlockBytes + 4 * kCacheNodeBytes);
  const Tokens prompt = Text(1, 640);
  rig.Insert(Chain(prompt));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "3 blocks, none");
  EXPECT_EQ(rig.cache.Stats().blocks_evicted, 0);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, ALongChainPushesOthersOutAndNotItself) {
  CacheRig rig(BudgetOfBlocks(8));
  const Tokens old_chain = Text(1, 6 * kCacheBlockTokens);
  rig.Insert(Chain(old_chain));
  const Tokens prompt = Text(2, 5 * kCacheBlockTokens);
  rig.Insert(Chain(prompt));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "5 blocks, none");
  EXPECT_EQ(Summary(rig.Find(Chain(old_chain))), "3 blocks, evicted");
}

TEST(PrefixCache, PinnedChainsStayAsLongAsTheirPins) {
  CacheRig rig(BudgetOfBlocks(4));
  const Tokens prompt = Text(1, 512);
  rig.Insert(Chain(prompt));
  {
    ChainPin pin;
    const Tokens part = First(prompt, 300);
    EXPECT_EQ(rig.cache.Lookup(Chain(part), 300, &pin).blocks.size(), 2u);
    EXPECT_EQ(rig.cache.Stats().pinned_chains, 1);
    ChainPin moved(std::move(pin));
    pin = std::move(moved);
    EXPECT_EQ(rig.cache.Stats().pinned_chains, 1);
    rig.cache.DropMemory();
    EXPECT_EQ(rig.cache.Stats().blocks, 2);
    EXPECT_FALSE(rig.cache.MakeRoom(BudgetOfBlocks(4)));
    EXPECT_EQ(rig.Problem(), "");
  }
  EXPECT_EQ(rig.cache.Stats().pinned_chains, 0);
  EXPECT_TRUE(rig.cache.MakeRoom(BudgetOfBlocks(4)));
  EXPECT_EQ(rig.rows.usage().used_bytes, 0);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, APinMovesWithItsChain) {
  CacheRig rig;
  const Tokens prompt = Text(1, 384);
  ChainPin pin;
  rig.Insert(Chain(First(prompt, 128)), {}, &pin);
  rig.Insert(Chain(prompt), rig.Find(Chain(First(prompt, 128))).blocks, &pin);
  EXPECT_EQ(rig.cache.Stats().pinned_chains, 1);
  rig.cache.DropMemory();
  EXPECT_EQ(rig.cache.Stats().blocks, 3);
  pin = ChainPin();
  rig.cache.DropMemory();
  EXPECT_EQ(rig.cache.Stats().blocks, 0);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, RoomThatCannotBeHadCostsNothing) {
  CacheRig rig(BudgetOfBlocks(8));
  const Tokens pinned = Text(1, 512);
  const Tokens other = Text(2, 512);
  ChainPin pin;
  rig.Insert(Chain(pinned), {}, &pin);
  rig.Insert(Chain(other));
  EXPECT_FALSE(rig.cache.MakeRoom(5 * kRigEntryBytes));
  EXPECT_EQ(rig.cache.Stats().blocks, 8);
  EXPECT_TRUE(rig.cache.MakeRoom(4 * kRigEntryBytes));
  EXPECT_EQ(rig.cache.Stats().blocks, 4);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, BlocksOfARunningSequenceAreNotEvictedInVain) {
  CacheRig rig(BudgetOfBlocks(4));
  const Tokens running = Text(1, 256);
  const Tokens idle = Text(2, 256);
  rig.Insert(Chain(running));
  const CacheMatch held = rig.Find(Chain(running));  // older than what comes, but held
  rig.Insert(Chain(idle));
  EXPECT_TRUE(rig.cache.MakeRoom(kRigEntryBytes));
  EXPECT_EQ(Summary(rig.Find(Chain(running))), "2 blocks, none");
  EXPECT_EQ(Summary(rig.Find(Chain(idle))), "1 blocks, evicted");
  EXPECT_FALSE(rig.cache.MakeRoom(3 * kRigEntryBytes));
  EXPECT_EQ(rig.cache.Stats().blocks, 3);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, RoomCountsWhatIsSetAside) {
  CacheRig rig(BudgetOfBlocks(4));
  const Tokens prompt = Text(1, 512);
  rig.Insert(Chain(prompt));
  ASSERT_TRUE(rig.cache.MakeRoom(kRigEntryBytes));
  ASSERT_TRUE(rig.rows.Reserve(1));
  ASSERT_TRUE(rig.cache.MakeRoom(kRigEntryBytes));
  EXPECT_EQ(rig.cache.Stats().blocks, 2);
  rig.rows.Unreserve(1);
}

TEST(PrefixCache, SnapshotsGoInTheOrderOfTheirUse) {
  CacheRig rig(kRigAmple, 2 * kRigSnapshotBytes);
  const Tokens a = Text(1, 50);
  const Tokens b = Text(2, 150);
  const Tokens c = Text(3, 250);
  rig.Run(Chain(a));
  rig.Run(Chain(b));
  EXPECT_EQ(rig.Find(Chain(a)).snapshot_tokens, 50);
  rig.Run(Chain(c));
  EXPECT_EQ(Summary(rig.Find(Chain(b))), "1 blocks, evicted");
  EXPECT_EQ(Summary(rig.Find(Chain(a))), "0 blocks, snapshot 50 ram, none");
  EXPECT_EQ(Summary(rig.Find(Chain(c))), "1 blocks, snapshot 250 ram, none");
  EXPECT_EQ(rig.cache.Stats().snapshots, 2);
  EXPECT_EQ(rig.cache.Stats().snapshots_evicted, 1);
}

TEST(PrefixCache, ASnapshotInUseIsNotEvictedInVain) {
  CacheRig rig(kRigAmple, 2 * kRigSnapshotBytes);
  const Tokens a = Text(1, 50);
  const Tokens b = Text(2, 50);
  rig.Run(Chain(a));
  rig.Run(Chain(b));
  {
    const CacheMatch held_a = rig.Find(Chain(a));
    EXPECT_TRUE(rig.cache.AllocateSnapshot());
    EXPECT_EQ(rig.cache.Stats().snapshots, 1);
    const BlockRef other = rig.cache.AllocateSnapshot();
    EXPECT_FALSE(rig.cache.AllocateSnapshot());
    EXPECT_EQ(rig.cache.Stats().snapshots, 1);
  }
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, NoBudgetForSnapshotsMeansNone) {
  CacheRig rig(kRigAmple, kRigSnapshotBytes - 1);
  EXPECT_FALSE(rig.cache.AllocateSnapshot());
  const Tokens prompt = Text(1, 300);
  EXPECT_FALSE(rig.Snapshot(Chain(prompt)));
}

TEST(PrefixCache, ABlockTakesItsSnapshotsAlong) {
  CacheRig rig;
  const Tokens prompt = Text(1, 300);
  rig.Run(Chain(prompt));
  EXPECT_EQ(rig.rows.usage().charged_bytes, 4 * kCacheNodeBytes);  // a root, two blocks, a snapshot
  rig.cache.DropMemory();
  EXPECT_EQ(rig.cache.Stats().snapshots, 0);
  EXPECT_EQ(rig.snapshots.usage().used_bytes, 0);
  EXPECT_EQ(rig.rows.usage().used_bytes, 0);
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "0 blocks, evicted");
}

TEST(PrefixCache, SnapshotsOfShortPromptsGiveTheirChargeBack) {
  CacheRig rig(8 * kCacheNodeBytes);
  for (int32_t seed = 0; seed < 100; ++seed) {
    const Tokens prompt = Text(seed, 40);
    const std::string tenant = "tenant " + std::to_string(seed % 5);
    rig.Run(Chain(prompt, tenant));
    EXPECT_EQ(rig.Find(Chain(prompt, tenant)).snapshot_tokens, 40);
  }
  EXPECT_TRUE(rig.cache.MakeRoom(8 * kCacheNodeBytes));
  EXPECT_EQ(rig.cache.Stats().snapshots, 0);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(PrefixCache, TheAuditSeesAPoolThatHoldsLess) {
  CacheRig rig;
  rig.Run(Chain(Text(1, 300)));
  EXPECT_EQ(rig.Problem(), "");
  rig.rows.Refund(kCacheNodeBytes);
  EXPECT_EQ(rig.Problem(), "A pool holds less than the prefix cache in it.");
  ASSERT_TRUE(rig.rows.Charge(kCacheNodeBytes));
}

TEST(PrefixCache, StatisticsCountHitsByTokens) {
  CacheRig rig;
  const Tokens prompt = Text(1, 300);
  rig.Run(Chain(prompt));
  rig.Find(Chain(prompt));
  rig.Find(Chain(prompt), 299);
  const PrefixCacheStats stats = rig.cache.Stats();
  EXPECT_EQ(stats.lookups, 3);
  EXPECT_EQ(stats.ram_hit_tokens, 300 + 256);
  EXPECT_EQ(stats.disk_hit_tokens, 0);
  EXPECT_EQ(stats.blocks, 2);
  EXPECT_EQ(stats.block_bytes, 2 * kRigBlockBytes);
  EXPECT_EQ(stats.snapshots, 1);
  EXPECT_EQ(stats.snapshot_bytes, kRigSnapshotBytes);
}

TEST(PrefixCache, LimitsBeyondThePromptAreItsEnd) {
  CacheRig rig;
  const Tokens prompt = Text(1, 256);
  rig.Run(Chain(prompt));
  EXPECT_EQ(rig.Find(Chain(prompt), 1 << 20).blocks.size(), 2u);
  EXPECT_EQ(rig.Find(Chain(prompt), 255).blocks.size(), 1u);
  EXPECT_EQ(Summary(rig.Find(Chain(prompt), 0)), "0 blocks, none");
  EXPECT_EQ(Summary(rig.Find(Chain({}))), "0 blocks, none");
}

}  // namespace
}  // namespace minke::testing
