// Why a lookup found no more than it did, and at which token.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "prefix_cache/prefix_cache.h"
#include "tests/prefix_cache/cache_rig.h"

namespace minke::testing {
namespace {

TEST(MissReason, EveryReasonAndTierHasAName) {
  EXPECT_STREQ(MissReasonName(MissReason::kNone), "none");
  EXPECT_STREQ(MissReasonName(MissReason::kNoRoom), "no_room");
  EXPECT_STREQ(MissReasonName(MissReason::kOtherTenant), "other_tenant");
  EXPECT_STREQ(CacheTierName(CacheTier::kDisk), "disk");
}

TEST(MissReason, ColdUntilSomethingBeginsAlike) {
  CacheRig rig;
  const Tokens prompt = Text(1, 300);
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "0 blocks, cold");
  rig.Run(Chain(Text(2, 300)));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "0 blocks, cold");
}

TEST(MissReason, TheFirstDifferenceIsExact) {
  constexpr int64_t kLength = 300;
  const Tokens known = Text(1, kLength);
  for (int64_t edited = 0; edited < kLength; ++edited) {
    CacheRig rig;
    rig.Run(Chain(known));
    Tokens prompt = known + Text(2, 100);
    prompt[static_cast<size_t>(edited)] = -7;
    std::string expected = std::to_string(edited / kCacheBlockTokens) + " blocks, ";
    // A token that follows from no other: the prompt's first.
    expected += edited == 0 ? "cold" : "diverged at " + std::to_string(edited);
    EXPECT_EQ(Summary(rig.Find(Chain(prompt))), expected);
  }
}

TEST(MissReason, TheNearestOfManyChainsCounts) {
  CacheRig rig;
  const Tokens common = Text(1, 256);
  const Tokens line = Text(2, 100);
  for (const int64_t shared : {10, 70, 30}) {
    rig.Run(Chain(common + First(line, shared) + Text(static_cast<int32_t>(shared), 200)));
  }
  const Tokens prompt = common + line + Text(99, 50);
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "2 blocks, diverged at 326");
}

TEST(MissReason, NoneWhereThePromptGoesOnAfterAllThatIsKnown) {
  CacheRig rig;
  const Tokens known = Text(1, 256);
  rig.Insert(Chain(known));
  EXPECT_EQ(Summary(rig.Find(Chain(known + Text(2, 200)))), "2 blocks, none");
}

TEST(MissReason, BelowGranularityInsideABlock) {
  CacheRig rig;
  const Tokens known = Text(1, 384);
  rig.Insert(Chain(known));
  for (const int64_t limit : {1, 127, 129, 255, 300, 383}) {
    EXPECT_EQ(rig.Find(Chain(known), limit).reason, MissReason::kBelowGranularity) << limit;
  }
  EXPECT_EQ(rig.Find(Chain(known), 384).reason, MissReason::kNone);
  ASSERT_TRUE(rig.Snapshot(Chain(First(known, 300))));
  EXPECT_EQ(Summary(rig.Find(Chain(known), 300)), "2 blocks, snapshot 300 ram, none");
  EXPECT_EQ(Summary(rig.Find(Chain(known), 301)), "2 blocks, snapshot 300 ram, below_granularity");
}

TEST(MissReason, TailsOfSnapshotsAreKnownChainsToo) {
  CacheRig rig;
  const Tokens known = Text(1, 200);
  rig.Run(Chain(known));
  EXPECT_EQ(Summary(rig.Find(Chain(First(known, 170) + Text(2, 100)))),
            "1 blocks, diverged at 170");
  EXPECT_EQ(Summary(rig.Find(Chain(known), 170)), "1 blocks, below_granularity");
}

TEST(MissReason, AnEvictionIsRememberedUntilTheBlockIsBack) {
  CacheRig rig;
  const Tokens known = Text(1, 300);
  rig.Run(Chain(known));
  rig.cache.DropMemory();
  const Tokens prompt = known + Text(2, 100);
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "0 blocks, evicted");
  rig.Insert(Chain(First(known, 128)));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "1 blocks, evicted");
  rig.Insert(Chain(known));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "2 blocks, none");
  // The same prompt again, whose snapshot had to go.
  EXPECT_EQ(Summary(rig.Find(Chain(known))), "2 blocks, evicted");
}

TEST(MissReason, OldEvictionsAreForgotten) {
  CacheRig rig(kRigEntryBytes + kCacheNodeBytes);
  const Tokens first = Text(0, 128);
  const Tokens second = Text(1, 128);
  rig.Insert(Chain(first));
  rig.Insert(Chain(second));
  for (size_t i = 2; i <= kEvictedKeysMax; ++i) {
    rig.Insert(Chain(Text(static_cast<int32_t>(i), 128)));
  }
  EXPECT_EQ(rig.Find(Chain(first)).reason, MissReason::kEvicted);
  rig.Insert(Chain(Text(-1, 128)));
  EXPECT_EQ(rig.Find(Chain(first)).reason, MissReason::kCold);
  EXPECT_EQ(rig.Find(Chain(second)).reason, MissReason::kEvicted);
  EXPECT_EQ(rig.Problem(), "");
}

TEST(MissReason, TenantsNeverShare) {
  CacheRig rig;
  const Tokens prompt = Text(1, 300);
  rig.Run(Chain(prompt, "alice"));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "bob"))), "0 blocks, other_tenant");
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "Alice"))), "0 blocks, other_tenant");
  EXPECT_EQ(Summary(rig.Find(Chain(First(prompt, 127), "bob"))), "0 blocks, cold");
  rig.Run(Chain(prompt, "bob"));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "bob"))), "2 blocks, snapshot 300 ram, none");
  EXPECT_EQ(rig.cache.Stats().blocks, 4);
  // A whole block of somebody else's is nearer than three tokens of one's own.
  const Tokens other = First(prompt, 3) + Text(2, 200);
  rig.Run(Chain(other, "carol"));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "carol"))), "0 blocks, other_tenant");
  EXPECT_EQ(Summary(rig.Find(Chain(First(prompt, 100), "carol"))), "0 blocks, diverged at 3");
}

TEST(MissReason, TheSnapshotOfAnotherTenantIsOutOfReach) {
  CacheRig rig;
  const Tokens prompt = Text(1, 50);
  rig.Run(Chain(prompt, "alice"));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "bob"))), "0 blocks, cold");
}

TEST(MissReason, ImagesCountFromTheirBlockOn) {
  CacheRig rig;
  const Tokens prompt = Text(1, 500);
  const CacheKey cat = TenantKey("cat");
  const CacheKey dog = TenantKey("dog");
  const std::vector<ExtraInput> cats = {{.position = 200, .content = cat}};
  const std::vector<ExtraInput> dogs = {{.position = 200, .content = dog}};
  const std::vector<ExtraInput> late = {{.position = 450, .content = dog}};
  rig.Run(Chain(prompt, "alice", cats));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "alice", cats))), "3 blocks, snapshot 500 ram, none");
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "alice", dogs))), "1 blocks, diverged at 200");
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "alice", late))), "1 blocks, diverged at 128");
  rig.Run(Chain(prompt, "alice", late));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "alice", late))), "3 blocks, snapshot 500 ram, none");
  EXPECT_EQ(Summary(rig.Find(Chain(prompt))), "3 blocks, diverged at 384");
  EXPECT_EQ(Summary(rig.Find(Chain(prompt), 440)), "3 blocks, below_granularity");
}

TEST(MissReason, AnImageInTheFirstBlockIsNoOtherTenant) {
  CacheRig rig;
  const Tokens prompt = Text(1, 200);
  const std::vector<ExtraInput> cat = {{.position = 20, .content = TenantKey("cat")}};
  const std::vector<ExtraInput> dog = {{.position = 20, .content = TenantKey("dog")}};
  rig.Run(Chain(prompt, "alice", cat));
  EXPECT_EQ(Summary(rig.Find(Chain(prompt, "alice", dog))), "0 blocks, diverged at 20");
}

TEST(MissReason, ExplainSaysWhatALookupWouldAndChangesNothing) {
  CacheRig rig(4 * kRigEntryBytes + 3 * kCacheNodeBytes);
  const Tokens known = Text(1, 300);
  const Tokens other = Text(2, 128);
  rig.Run(Chain(known));
  rig.Run(Chain(other));
  for (const auto& prompt : {known, known + Text(3, 90), First(known, 280) + Text(4, 9),
                             First(known, 150), Text(5, 400), First(known, 40)}) {
    const CacheExplanation told = rig.cache.Explain(Chain(prompt), 1 << 20);
    const CacheMatch match = rig.Find(Chain(prompt));
    EXPECT_EQ(told.ram_tokens, static_cast<int64_t>(match.blocks.size()) * kCacheBlockTokens);
    EXPECT_EQ(told.disk_tokens, 0);
    EXPECT_EQ(told.snapshot_tokens, match.snapshot_tokens);
    EXPECT_EQ(told.snapshot_tier, match.snapshot_tier);
    EXPECT_EQ(told.reason, match.reason);
    EXPECT_EQ(told.first_difference, match.first_difference);
  }
  // Explaining is no use: `other` stays the older one, and goes.
  CacheRig second(3 * kRigEntryBytes + kCacheNodeBytes);
  second.Insert(Chain(other));
  second.Insert(Chain(First(known, 256)));
  EXPECT_EQ(second.cache.Explain(Chain(other), 128).ram_tokens, 128);
  EXPECT_EQ(second.cache.Stats().lookups, 0);
  ASSERT_TRUE(second.cache.MakeRoom(kRigEntryBytes));
  EXPECT_EQ(Summary(second.Find(Chain(other))), "0 blocks, evicted");
}

}  // namespace
}  // namespace minke::testing
