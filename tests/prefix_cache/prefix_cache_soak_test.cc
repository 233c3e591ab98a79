// Random traffic over a cache that is far too small for it: sequences start, grow, take snapshots,
// finish or are aborted at any point, memory is dropped, the process starts anew. After every
// operation the budgets hold, every hit has the right bytes, and at the end nothing is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "prefix_cache/block_store.h"
#include "prefix_cache/prefix_cache.h"
#include "tests/prefix_cache/cache_rig.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int64_t kOperationsPerAudit = 10000;
constexpr size_t kSequencesMax = 5;
constexpr int64_t kTokensMax = 6 * kCacheBlockTokens;

struct RunningSequence {
  std::string tenant;
  Tokens tokens;
  std::vector<ExtraInput> extras;
  std::vector<BlockRef> blocks;
  ChainPin pin;
  int64_t reserved = 0;  // blocks set aside for the rest

  CacheChain Part(size_t blocks_count) const {
    return {.tenant = TenantKey(tenant),
            .tokens = std::span(tokens).first(blocks_count * kCacheBlockTokens),
            .extras = extras};
  }
  CacheChain Whole() const {
    return {.tenant = TenantKey(tenant), .tokens = tokens, .extras = extras};
  }
};

// How many entries memory holds.
struct SoakBudget {
  int64_t blocks = 0;
  int64_t snapshots = 0;
};

class CacheSoak {
 public:
  CacheSoak(uint32_t seed, const SoakBudget& budget, std::optional<StoreOptions> disk)
      : random_(seed),
        disk_(std::move(disk)),
        rows_(kRigBlockBytes, budget.blocks * kRigEntryBytes),
        snapshots_(kRigSnapshotBytes, budget.snapshots * kRigSnapshotBytes) {
    Start();
  }
  ~CacheSoak() { Stop(); }
  CacheSoak(const CacheSoak&) = delete;
  CacheSoak& operator=(const CacheSoak&) = delete;

  void Run(int64_t operations) {
    for (int64_t i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      Operate();
      CheckBudget(rows_);
      CheckBudget(snapshots_);
      if (i % kOperationsPerAudit == 0) CheckAudit();
    }
    CheckAudit();
  }

  int64_t lookups = 0;
  int64_t hits = 0;
  int64_t snapshot_hits = 0;
  int64_t disk_hits = 0;
  int64_t aborts = 0;
  int64_t refusals = 0;
  int64_t restarts = 0;
  int64_t evictions = 0;

 private:
  int64_t Below(int64_t limit) { return static_cast<int64_t>(random_() % limit); }

  void Start() {
    if (disk_) {
      Result<std::unique_ptr<BlockStore>> opened = BlockStore::Open(*disk_);
      ASSERT_TRUE(opened) << opened.error().message;
      store_ = std::move(*opened);
    }
    cache_ = std::make_unique<PrefixCache>(CacheKey(), rows_, snapshots_, store_.get());
  }

  // Ends the process, as far as the cache can tell: nothing is left in the pools.
  void Stop() {
    sequences_.clear();
    rows_.Unreserve(rows_.usage().reserved_bytes / kRigBlockBytes);
    EXPECT_EQ(cache_->Stats().pinned_chains, 0);
    if (store_ != nullptr) store_->Flush();
    store_.reset();
    const PrefixCacheStats stats = cache_->Stats();
    EXPECT_EQ(rows_.usage().live_blocks, stats.blocks);
    EXPECT_EQ(snapshots_.usage().live_blocks, stats.snapshots);
    EXPECT_GE(rows_.usage().charged_bytes, (stats.blocks + stats.snapshots) * kCacheNodeBytes);
    evictions += stats.blocks_evicted;
    cache_.reset();
    EXPECT_EQ(rows_.usage().used_bytes, 0);
    EXPECT_EQ(snapshots_.usage().used_bytes, 0);
  }

  void Operate() {
    const int64_t choice = Below(100000);
    if (choice < 2) {
      Stop();
      Start();
      ++restarts;
    } else if (choice < 10) {
      cache_->DropMemory();
    } else if (choice < 200) {
      const bool made = cache_->MakeRoom(Below(rows_.usage().budget_bytes * 5 / 4));
      refusals += made ? 0 : 1;
    } else if (choice < 30000 || sequences_.empty()) {
      sequences_.size() < kSequencesMax ? Begin() : Finish(Below(5));
    } else if (choice < 75000) {
      Step(*sequences_[Pick()]);
    } else if (choice < 90000) {
      Finish(static_cast<int64_t>(Pick()));
    } else {
      Abort(Pick());
    }
  }

  size_t Pick() { return static_cast<size_t>(Below(static_cast<int64_t>(sequences_.size()))); }

  // One of a few beginnings, then one of a few turns, cut anywhere.
  std::unique_ptr<RunningSequence> MakePrompt() {
    auto sequence = std::make_unique<RunningSequence>();
    sequence->tenant = Below(4) == 0 ? "bob" : "alice";
    const auto system = static_cast<int32_t>(Below(6));
    sequence->tokens = Text(system, 40 + system * 50);
    while (static_cast<int64_t>(sequence->tokens.size()) < kTokensMax) {
      const auto turn = static_cast<int32_t>(10 + Below(4));
      sequence->tokens = std::move(sequence->tokens) + Text(turn, 20 + Below(8) * 30);
      if (Below(3) == 0) break;
    }
    if (Below(3) == 0) sequence->tokens.resize(1 + random_() % sequence->tokens.size());
    if (Below(5) == 0) {
      const int64_t position = Below(static_cast<int64_t>(sequence->tokens.size()) / 60 + 1) * 60;
      sequence->extras = {{.position = position, .content = TenantKey("image")}};
    }
    return sequence;
  }

  void Begin() {
    auto sequence = MakePrompt();
    const CacheChain chain = sequence->Whole();
    const auto tokens = static_cast<int64_t>(sequence->tokens.size());
    const CacheMatch match = cache_->Lookup(chain, tokens - Below(2), &sequence->pin);
    ASSERT_TRUE(IsRight(chain, match));
    ASSERT_LE(match.snapshot_tokens, tokens);
    ++lookups;
    hits += match.blocks.empty() ? 0 : 1;
    snapshot_hits += match.snapshot ? 1 : 0;
    disk_hits += match.disk_blocks > 0 ? 1 : 0;
    sequence->blocks = match.blocks;
    const int64_t missing = tokens / kCacheBlockTokens - static_cast<int64_t>(match.blocks.size());
    if (!cache_->MakeRoom(missing * kRigBlockBytes) || !rows_.Reserve(missing)) {
      ++refusals;
      return;
    }
    sequence->reserved = missing;
    sequences_.push_back(std::move(sequence));
  }

  void Step(RunningSequence& sequence) {
    if (sequence.reserved > 0) {
      BlockRef block = rows_.AllocateReserved();
      --sequence.reserved;
      const CacheChain chain = sequence.Part(sequence.blocks.size() + 1);
      const auto end = static_cast<int64_t>(chain.tokens.size());
      Fill({block.bytes(), static_cast<size_t>(kRigBlockBytes)}, ChainHash(chain, end));
      sequence.blocks.push_back(std::move(block));
      cache_->InsertBlocks(chain, sequence.blocks, Below(2) == 0 ? &sequence.pin : nullptr);
    }
    if (Below(4) == 0) TakeSnapshot(sequence.Part(sequence.blocks.size()));
  }

  void TakeSnapshot(const CacheChain& chain) {
    BlockRef snapshot = cache_->AllocateSnapshot();
    if (!snapshot) return;
    if (Below(20) == 0) return;  // aborted before it was filled
    const int64_t bytes = 1 + Below(kRigSnapshotBytes);
    const auto tokens = static_cast<int64_t>(chain.tokens.size());
    Fill({snapshot.bytes(), static_cast<size_t>(bytes)}, ~ChainHash(chain, tokens));
    cache_->InsertSnapshot(chain, std::move(snapshot), bytes);
  }

  void Finish(int64_t index) {
    RunningSequence& sequence = *sequences_[static_cast<size_t>(index)];
    while (sequence.reserved > 0) {
      Step(sequence);
    }
    TakeSnapshot(sequence.Whole());
    sequences_.erase(sequences_.begin() + index);
  }

  void Abort(size_t index) {
    rows_.Unreserve(sequences_[index]->reserved);
    sequences_.erase(sequences_.begin() + static_cast<int64_t>(index));
    ++aborts;
  }

  static void CheckBudget(const BlockPool& pool) {
    const BlockPoolUsage usage = pool.usage();
    ASSERT_LE(usage.used_bytes + usage.reserved_bytes, usage.budget_bytes);
  }

  void CheckAudit() const {
    const Status status = cache_->Audit();
    ASSERT_TRUE(status) << status.error().message;
    const PrefixCacheStats stats = cache_->Stats();
    ASSERT_LE(stats.pinned_chains, static_cast<int64_t>(sequences_.size()));
  }

  std::mt19937 random_;
  std::optional<StoreOptions> disk_;
  BlockPool rows_;
  BlockPool snapshots_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<PrefixCache> cache_;
  std::vector<std::unique_ptr<RunningSequence>> sequences_;
};

void ExpectTraffic(const CacheSoak& soak) {
  EXPECT_GT(soak.lookups, 0);
  EXPECT_GT(soak.hits, soak.lookups / 10);
  EXPECT_GT(soak.snapshot_hits, soak.lookups / 20);
  EXPECT_GT(soak.aborts, 0);
  EXPECT_GT(soak.refusals, 0);
}

TEST(PrefixCacheSoak, AMillionOperationsLeakNothing) {
  constexpr uint32_t kSeed = 20261129;
  SCOPED_TRACE(kSeed);
  CacheSoak soak(kSeed, {.blocks = 60, .snapshots = 20}, std::nullopt);
  soak.Run(kSanitized ? 50000 : 1000000);
  ExpectTraffic(soak);
  EXPECT_EQ(soak.disk_hits, 0);
  RecordProperty("hits", static_cast<int>(soak.hits));
}

TEST(PrefixCacheSoak, ADiskBelowLeaksNothingEither) {
  constexpr uint32_t kSeed = 71;
  SCOPED_TRACE(kSeed);
  const TempDirectory directory;
  StoreOptions options;
  options.directory = directory.path();
  options.budget_bytes = int64_t{4} << 20;
  options.snapshot_budget_bytes = int64_t{1} << 20;
  options.segment_bytes = int64_t{1} << 18;
  options.queue_bytes = int64_t{16} << 10;
  CacheSoak soak(kSeed, {.blocks = 120, .snapshots = 80}, options);
  soak.Run(kSanitized ? 3000 : 12000);
  ExpectTraffic(soak);
  EXPECT_GT(soak.disk_hits, 0);
  RecordProperty("disk_hits", static_cast<int>(soak.disk_hits));
}

}  // namespace
}  // namespace minke::testing
