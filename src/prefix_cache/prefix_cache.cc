#include "prefix_cache/prefix_cache.h"

#include <algorithm>
#include <limits>

#include "prefix_cache/cache_search.h"
#include "prefix_cache/cache_tree.h"

namespace minke {

const char* MissReasonName(MissReason reason) {
  switch (reason) {
    case MissReason::kNone:
      return "none";
    case MissReason::kCold:
      return "cold";
    case MissReason::kDiverged:
      return "diverged";
    case MissReason::kEvicted:
      return "evicted";
    case MissReason::kOtherTenant:
      return "other_tenant";
    case MissReason::kOtherModel:
      return "other_model";
    case MissReason::kBelowGranularity:
      return "below_granularity";
    case MissReason::kDamaged:
      return "damaged";
    case MissReason::kNoSnapshot:
      return "no_snapshot";
    case MissReason::kNoRoom:
      return "no_room";
  }
  return "";
}

const char* CacheTierName(CacheTier tier) {
  switch (tier) {
    case CacheTier::kNone:
      return "none";
    case CacheTier::kRam:
      return "ram";
    case CacheTier::kDisk:
      return "disk";
  }
  return "";
}

namespace {

// Keeps the end of a chain in memory while the chain grows.
class MovingPin {
 public:
  MovingPin(CacheTree& tree, EntryId node) : tree_(tree) { MoveTo(node); }
  ~MovingPin() { MoveTo(kNoEntry); }
  MovingPin(const MovingPin&) = delete;
  MovingPin& operator=(const MovingPin&) = delete;
  void MoveTo(EntryId node) {
    if (node != kNoEntry) tree_.Pin(node);
    if (node_ != kNoEntry) tree_.Unpin(node_);
    node_ = node;
  }

 private:
  CacheTree& tree_;
  EntryId node_ = kNoEntry;
};

bool SameTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

// What went wrong on the way; the worse one is reported.
struct Trouble {
  bool damaged = false;
  bool no_room = false;
};

}  // namespace

struct PrefixCache::Impl {
  Impl(const CacheKey& fingerprint_in, BlockPool& rows, BlockPool& snapshots, BlockStore* store_in)
      : fingerprint(fingerprint_in), store(store_in), tree(rows, snapshots, store_in) {}

  // The search's root, made if need be, and pinned through `pin`; false where there is no room.
  bool EnsureRoot(CacheSearch& search, MovingPin& pin);
  // Brings what the disk has of the next blocks into memory, at most so many. Returns their number.
  int64_t LoadBlocks(CacheSearch& search, int64_t blocks_max, MovingPin& pin, Trouble& trouble);
  bool NextIsStored(const CacheSearch& search) const {
    return store != nullptr && search.HasNext() && store->Contains(search.next_key());
  }
  bool LoadBlock(CacheSearch& search, MovingPin& pin, Trouble& trouble);
  // The snapshot that was found, in `match` too.
  SnapshotChoice FindSnapshot(CacheSearch& search, MovingPin& pin, CacheMatch& match,
                              Trouble& trouble);
  // Fills `bytes`; false if the record cannot be had.
  bool ReadSnapshot(const CacheSearch& search, const SnapshotChoice& choice, const BlockRef& bytes,
                    CacheMatch& match, Trouble& trouble);
  void Touch(const CacheSearch& search, const SnapshotChoice& snapshot);
  void Count(const CacheMatch& match);

  RecordInfo BlockRecord(const CacheSearch& search, const CacheChain& chain, int64_t d) const;
  bool EnsureStored(const CacheSearch& search, const CacheChain& chain);

  CacheKey fingerprint;
  BlockStore* store;
  CacheTree tree;
  int64_t pinned_chains = 0;
  int64_t lookups = 0;
  int64_t ram_hit_tokens = 0;
  int64_t disk_hit_tokens = 0;
};

PrefixCache::PrefixCache(const CacheKey& fingerprint, BlockPool& rows, BlockPool& snapshots,
                         BlockStore* store)
    : impl_(std::make_unique<Impl>(fingerprint, rows, snapshots, store)) {}

PrefixCache::~PrefixCache() {
  CHECK(impl_->pinned_chains == 0, "a pin outlived its cache");
}

// ---- pins ----

ChainPin::~ChainPin() {
  if (cache_ != nullptr) cache_->Unpin(node_);
}

ChainPin::ChainPin(ChainPin&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), node_(other.node_) {}

ChainPin& ChainPin::operator=(ChainPin&& other) noexcept {
  ChainPin taken(std::move(other));  // what was held here is released at the end
  std::swap(cache_, taken.cache_);
  std::swap(node_, taken.node_);
  return *this;
}

void PrefixCache::Unpin(int64_t node) {
  impl_->tree.Unpin(node);
  --impl_->pinned_chains;
}

ChainPin PrefixCache::PinChain(int64_t node) {
  impl_->tree.Pin(node);
  ++impl_->pinned_chains;
  return ChainPin(this, node);
}

// ---- lookup ----

bool PrefixCache::Impl::EnsureRoot(CacheSearch& search, MovingPin& pin) {
  if (search.Node(0) != kNoEntry) return true;
  const EntryId root = tree.AddRoot(search.Key(0));
  if (root == kNoEntry) return false;
  search.SetRoot(root);
  pin.MoveTo(root);
  return true;
}

int64_t PrefixCache::Impl::LoadBlocks(CacheSearch& search, int64_t blocks_max, MovingPin& pin,
                                      Trouble& trouble) {
  const int64_t known = search.depth();
  while (search.depth() - known < blocks_max && NextIsStored(search) &&
         LoadBlock(search, pin, trouble)) {
  }
  return search.depth() - known;
}

bool PrefixCache::Impl::LoadBlock(CacheSearch& search, MovingPin& pin, Trouble& trouble) {
  const BlockRef block = EnsureRoot(search, pin) ? tree.AllocateBlock() : BlockRef();
  if (!block) {
    trouble.no_room = true;
    return false;
  }
  RecordInfo info;
  const CacheKey key = search.next_key();
  const auto bytes = std::span(block.bytes(), static_cast<size_t>(tree.block_bytes()));
  const ReadOutcome outcome = store->Read(key, bytes, &info);
  if (outcome == ReadOutcome::kMiss || outcome == ReadOutcome::kOff) return false;
  // The key says all this already; but whoever wrote the record may have been wrong about it.
  const auto tokens = search.NextTokens();
  if (outcome == ReadOutcome::kDamaged || info.kind != RecordKind::kBlock ||
      info.payload_bytes != tree.block_bytes() || !SameTokens(tokens, info.tokens)) {
    trouble.damaged = true;
    return false;
  }
  const EntryId node = tree.AddBlock(search.end(), key, tokens, block);
  if (node == kNoEntry) {
    trouble.no_room = true;
    return false;
  }
  tree.MarkStored(node);
  pin.MoveTo(node);
  search.Extend(node);
  return true;
}

SnapshotChoice PrefixCache::Impl::FindSnapshot(CacheSearch& search, MovingPin& pin,
                                               CacheMatch& match, Trouble& trouble) {
  std::vector<CacheKey> skipped;
  bool with_disk = true;
  SnapshotChoice choice = search.BestSnapshot(skipped, with_disk);
  while (choice.tokens >= 0 && choice.entry == kNoEntry) {
    const BlockRef bytes = tree.AllocateSnapshot();
    if (!bytes) {
      trouble.no_room = true;
      with_disk = false;
    } else if (ReadSnapshot(search, choice, bytes, match, trouble)) {
      // The match is good even where there is no room to remember it.
      if (choice.depth == 0 && !EnsureRoot(search, pin)) return choice;
      const auto tail =
          search.Tokens(choice.depth, choice.tokens - choice.depth * kCacheBlockTokens);
      tree.AddSnapshot(search.Node(choice.depth), choice.key, tail, bytes, match.snapshot_bytes);
      return choice;
    }
    skipped.push_back(choice.key);
    choice = search.BestSnapshot(skipped, with_disk);
  }
  if (choice.tokens < 0) return choice;
  const CacheSnapshot& snapshot = tree.Snapshot(choice.entry);
  tree.TouchSnapshot(choice.entry);
  match.snapshot = snapshot.bytes;
  match.snapshot_bytes = snapshot.size_bytes;
  match.snapshot_tokens = choice.tokens;
  match.snapshot_tier = CacheTier::kRam;
  return choice;
}

bool PrefixCache::Impl::ReadSnapshot(const CacheSearch& search, const SnapshotChoice& choice,
                                     const BlockRef& bytes, CacheMatch& match, Trouble& trouble) {
  RecordInfo info;
  const int64_t bytes_max = tree.snapshot_bytes_max();
  const ReadOutcome outcome =
      store->Read(choice.key, std::span(bytes.bytes(), static_cast<size_t>(bytes_max)), &info);
  if (outcome == ReadOutcome::kMiss || outcome == ReadOutcome::kOff) return false;
  const auto tail = search.Tokens(choice.depth, choice.tokens - choice.depth * kCacheBlockTokens);
  if (outcome == ReadOutcome::kDamaged || info.kind != RecordKind::kSnapshot ||
      info.payload_bytes > bytes_max || !SameTokens(tail, info.tokens)) {
    trouble.damaged = true;
    return false;
  }
  match.snapshot = bytes;
  match.snapshot_bytes = info.payload_bytes;
  match.snapshot_tokens = choice.tokens;
  match.snapshot_tier = CacheTier::kDisk;
  return true;
}

void PrefixCache::Impl::Touch(const CacheSearch& search, const SnapshotChoice& snapshot) {
  if (search.end() != kNoEntry) tree.TouchChain(search.end());
  if (store == nullptr) return;
  std::vector<CacheKey> used;
  if (snapshot.tokens >= 0) used.push_back(snapshot.key);
  for (int64_t d = search.depth(); d > 0; --d) {
    used.push_back(search.Key(d));
  }
  store->Touch(used);
}

void PrefixCache::Impl::Count(const CacheMatch& match) {
  const int64_t tokens = static_cast<int64_t>(match.blocks.size()) * kCacheBlockTokens;
  const int64_t tail = std::max<int64_t>(0, match.snapshot_tokens - tokens);
  const int64_t from_disk = match.disk_blocks * kCacheBlockTokens;
  ++lookups;
  ram_hit_tokens += tokens - from_disk;
  disk_hit_tokens += from_disk;
  (match.snapshot_tier == CacheTier::kDisk ? disk_hit_tokens : ram_hit_tokens) += tail;
}

CacheMatch PrefixCache::Lookup(const CacheChain& chain, int64_t limit_tokens, ChainPin* pin,
                               DiskReading* reading) {
  CHECK(reading == nullptr || (reading->blocks_max > 0 && pin != nullptr));
  CacheSearch search(impl_->tree, impl_->store, impl_->fingerprint, chain, limit_tokens);
  search.WalkMemory();
  MovingPin arriving(impl_->tree, search.end());
  Trouble trouble;
  CacheMatch match;
  const int64_t blocks_max =
      reading == nullptr ? std::numeric_limits<int64_t>::max() : reading->blocks_max;
  match.disk_blocks = impl_->LoadBlocks(search, blocks_max, arriving, trouble);
  match.more_on_disk = match.disk_blocks == blocks_max && impl_->NextIsStored(search);
  if (reading != nullptr) match.disk_blocks = reading->blocks_read += match.disk_blocks;
  for (int64_t d = 1; d <= search.depth(); ++d) {
    match.blocks.push_back(impl_->tree.Node(search.Node(d)).block);
  }
  if (match.more_on_disk) {
    *pin = PinChain(search.end());
    return match;
  }
  const SnapshotChoice snapshot = impl_->FindSnapshot(search, arriving, match, trouble);
  for (const DamagedRecord& record : search.Damaged(snapshot.tokens)) {
    trouble.damaged = true;
    impl_->store->ForgetDamage(record);
  }
  const MissExplanation miss = search.Explain(snapshot.tokens);
  match.reason = miss.reason;
  match.first_difference = miss.first_difference;
  if (trouble.damaged || trouble.no_room) {
    match.reason = trouble.damaged ? MissReason::kDamaged : MissReason::kNoRoom;
    match.first_difference = -1;
  }
  impl_->Touch(search, snapshot);
  impl_->Count(match);
  if (pin != nullptr) *pin = search.depth() > 0 ? PinChain(search.end()) : ChainPin();
  return match;
}

CacheExplanation PrefixCache::Explain(const CacheChain& chain, int64_t limit_tokens) const {
  CacheSearch search(impl_->tree, impl_->store, impl_->fingerprint, chain, limit_tokens);
  search.WalkMemory();
  CacheExplanation explanation;
  explanation.ram_tokens = search.depth() * kCacheBlockTokens;
  while (impl_->store != nullptr && search.HasNext() && impl_->store->Contains(search.next_key())) {
    search.Extend(kNoEntry);
  }
  explanation.disk_tokens = search.depth() * kCacheBlockTokens - explanation.ram_tokens;
  const SnapshotChoice snapshot = search.BestSnapshot({}, true);
  if (snapshot.tokens >= 0) {
    explanation.snapshot_tokens = snapshot.tokens;
    explanation.snapshot_tier = snapshot.entry == kNoEntry ? CacheTier::kDisk : CacheTier::kRam;
  }
  const MissExplanation miss = search.Damaged(snapshot.tokens).empty()
                                   ? search.Explain(snapshot.tokens)
                                   : MissExplanation{.reason = MissReason::kDamaged};
  explanation.reason = miss.reason;
  explanation.first_difference = miss.first_difference;
  return explanation;
}

// ---- insertion ----

RecordInfo PrefixCache::Impl::BlockRecord(const CacheSearch& search, const CacheChain& chain,
                                          int64_t d) const {
  const auto tokens = search.Tokens(d - 1, kCacheBlockTokens);
  return {.kind = RecordKind::kBlock,
          .key = search.Key(d),
          .parent = search.Key(d - 1),
          .fingerprint = fingerprint,
          .tenant = chain.tenant,
          .content = tree.Node(search.Node(1)).content,
          .end_position = d * kCacheBlockTokens,
          .tokens = {tokens.begin(), tokens.end()},
          .payload_bytes = tree.block_bytes()};
}

// Whether all blocks of the search are on disk or on their way. A record whose chain is not there
// would be of no use to anybody, so what the store refused or lost is offered again, from the root
// on, and nothing is offered after the first that is refused. Blocks that came from disk or were
// offered before are asked for only behind the last one that is there: a damaged one in the middle
// of a chain comes back as a new node, which was not.
bool PrefixCache::Impl::EnsureStored(const CacheSearch& search, const CacheChain& chain) {
  if (store == nullptr) return false;
  int64_t last_stored = search.depth();
  while (last_stored > 0 && !store->Contains(search.Key(last_stored))) --last_stored;
  for (int64_t d = 1; d <= search.depth(); ++d) {
    const EntryId node = search.Node(d);
    if (d <= last_stored && tree.Node(node).stored) continue;
    if (!store->Contains(search.Key(d))) {
      store->Put(BlockRecord(search, chain, d), tree.Node(node).block);
      if (!store->Contains(search.Key(d))) return false;
    }
    tree.MarkStored(node);
  }
  return true;
}

void PrefixCache::InsertBlocks(const CacheChain& chain, std::span<const BlockRef> blocks,
                               ChainPin* pin) {
  CHECK(blocks.size() * kCacheBlockTokens <= chain.tokens.size(), "a block is not full");
  const int64_t tokens = static_cast<int64_t>(blocks.size()) * kCacheBlockTokens;
  CacheSearch search(impl_->tree, impl_->store, impl_->fingerprint, chain, tokens);
  search.WalkMemory();
  const int64_t known = search.depth();
  MovingPin arriving(impl_->tree, search.end());
  while (search.HasNext() && impl_->EnsureRoot(search, arriving)) {
    const EntryId node = impl_->tree.AddBlock(search.end(), search.next_key(), search.NextTokens(),
                                              blocks[static_cast<size_t>(search.depth())]);
    if (node == kNoEntry) break;
    arriving.MoveTo(node);
    search.Extend(node);
  }
  if (search.depth() > known) impl_->EnsureStored(search, chain);
  if (pin != nullptr) *pin = search.depth() > 0 ? PinChain(search.end()) : ChainPin();
}

BlockRef PrefixCache::AllocateSnapshot() {
  return impl_->tree.AllocateSnapshot();
}

void PrefixCache::InsertSnapshot(const CacheChain& chain, BlockRef snapshot, int64_t bytes) {
  CHECK(snapshot && bytes >= 0 && bytes <= impl_->tree.snapshot_bytes_max());
  const int64_t tokens = static_cast<int64_t>(chain.tokens.size());
  CacheSearch search(impl_->tree, impl_->store, impl_->fingerprint, chain, tokens);
  search.WalkMemory();
  if (search.HasNext()) return;  // Its rows are not there.
  MovingPin arriving(impl_->tree, search.end());
  if (!impl_->EnsureRoot(search, arriving)) return;
  const int64_t start = search.depth() * kCacheBlockTokens;
  const auto tail = search.Tokens(search.depth(), tokens - start);
  const CacheKey key = search.KeyOfSnapshot(search.depth(), tokens - start);
  const EntryId known = impl_->tree.FindSnapshot(key);
  if (known != kNoEntry) {
    impl_->tree.TouchSnapshot(known);
  } else {
    impl_->tree.AddSnapshot(search.end(), key, tail, snapshot, bytes);
  }
  if (!impl_->EnsureStored(search, chain)) return;
  RecordInfo record = {.kind = RecordKind::kSnapshot,
                       .key = key,
                       .parent = search.Key(search.depth()),
                       .fingerprint = impl_->fingerprint,
                       .tenant = chain.tenant,
                       .end_position = tokens,
                       .tokens = {tail.begin(), tail.end()},
                       .payload_bytes = bytes};
  if (search.depth() > 0) record.content = impl_->tree.Node(search.Node(1)).content;
  impl_->store->Put(std::move(record), std::move(snapshot));
}

// ---- the rest ----

bool PrefixCache::MakeRoom(int64_t bytes) {
  return impl_->tree.MakeRoom(bytes);
}

void PrefixCache::DropMemory() {
  impl_->tree.DropUnpinned();
}

PrefixCacheStats PrefixCache::Stats() const {
  const CacheTree& tree = impl_->tree;
  return {.blocks = tree.block_count(),
          .snapshots = tree.snapshot_count(),
          .block_bytes = tree.block_count() * tree.block_bytes(),
          .snapshot_bytes = tree.snapshot_bytes(),
          .pinned_chains = impl_->pinned_chains,
          .blocks_evicted = tree.blocks_evicted(),
          .snapshots_evicted = tree.snapshots_evicted(),
          .lookups = impl_->lookups,
          .ram_hit_tokens = impl_->ram_hit_tokens,
          .disk_hit_tokens = impl_->disk_hit_tokens};
}

Status PrefixCache::Audit() const {
  return impl_->tree.Audit();
}

}  // namespace minke
