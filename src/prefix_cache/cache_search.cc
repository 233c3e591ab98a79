#include "prefix_cache/cache_search.h"

#include <algorithm>

namespace minke {

namespace {

// Records that one question to the index of the disk may bring. Below a common beginning there may
// be thousands of snapshots, of as many conversations.
constexpr size_t kDiskCandidatesMax = 64;
// Chains in memory that are compared token by token, to find the nearest; the newest come first.
constexpr int64_t kNearestChainsMax = 4096;

bool IsIn(const CacheKey& key, std::span<const CacheKey> keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

// The chain that has the most tokens in common with the prompt behind its known blocks.
struct CacheSearch::Nearest {
  int64_t common = -1;      // tokens; -1: nothing is known there
  bool differs = false;     // a chain goes on with something else than the prompt
  bool same_block = false;  // some chain's next block has the same tokens, and another image
  int64_t start = 0;        // position of `rest`
  std::span<const int32_t> rest;
  std::span<const ExtraInput> extras;

  // A block's tokens or a snapshot's tail. `used`: it is the beginning of the prompt, by its key.
  void Consider(std::span<const int32_t> tokens, bool used) {
    const auto [mine, theirs] =
        std::mismatch(rest.begin(), rest.end(), tokens.begin(), tokens.end());
    int64_t count = mine - rest.begin();
    bool other = mine != rest.end() && theirs != tokens.end();
    if (theirs == tokens.end() && !used) {
      // The same tokens under another key: an image differs.
      count = extras.empty() ? 0 : std::min(count, extras.front().position - start);
      other = true;
      same_block = same_block || tokens.size() == kCacheBlockTokens;
    }
    if (count < common) return;
    differs = other || (count == common && differs);
    common = count;
  }
};

CacheSearch::CacheSearch(const CacheTree& tree, BlockStore* store, const CacheKey& fingerprint,
                         const CacheChain& chain, int64_t limit_tokens)
    : tree_(tree), store_(store), chain_(chain) {
  limit_ = std::clamp<int64_t>(limit_tokens, 0, static_cast<int64_t>(chain.tokens.size()));
  keys_.push_back(RootKey(fingerprint, chain.tenant));
  nodes_.push_back(tree_.FindNode(keys_.back()));
  FindNextKey();
}

std::span<const int32_t> CacheSearch::Tokens(int64_t d, int64_t count) const {
  return chain_.tokens.subspan(static_cast<size_t>(d * kCacheBlockTokens),
                               static_cast<size_t>(count));
}

std::span<const ExtraInput> CacheSearch::Extras(int64_t d, int64_t count) const {
  const auto before = [](const ExtraInput& extra, int64_t position) {
    return extra.position < position;
  };
  const int64_t start = d * kCacheBlockTokens;
  const auto first = std::lower_bound(chain_.extras.begin(), chain_.extras.end(), start, before);
  const auto last = std::lower_bound(first, chain_.extras.end(), start + count, before);
  return {first, last};
}

void CacheSearch::FindNextKey() {
  if (!HasNext()) return;
  next_key_ = BlockKey(keys_.back(), NextTokens(), Extras(depth(), kCacheBlockTokens),
                       depth() * kCacheBlockTokens);
}

void CacheSearch::Extend(EntryId node) {
  keys_.push_back(next_key_);
  nodes_.push_back(node);
  FindNextKey();
}

void CacheSearch::WalkMemory() {
  while (HasNext()) {
    const EntryId node = tree_.FindNode(next_key_);
    if (node == kNoEntry) return;
    Extend(node);
  }
}

// ---- snapshots ----

CacheKey CacheSearch::KeyOfSnapshot(int64_t d, int64_t tail) const {
  return SnapshotKey(Key(d), Tokens(d, tail), Extras(d, tail), d * kCacheBlockTokens);
}

bool CacheSearch::Continues(int64_t d, std::span<const int32_t> tail, const CacheKey& key) const {
  const int64_t count = static_cast<int64_t>(tail.size());
  if (count >= kCacheBlockTokens || d * kCacheBlockTokens + count > limit_) return false;
  const auto mine = Tokens(d, count);
  return std::equal(tail.begin(), tail.end(), mine.begin()) && KeyOfSnapshot(d, count) == key;
}

SnapshotChoice CacheSearch::BestInMemory() const {
  SnapshotChoice best;
  // A tail is shorter than a block, so the deepest node that has any has the longest.
  for (int64_t d = depth(); d >= 0 && best.tokens < 0; --d) {
    if (Node(d) == kNoEntry) continue;
    for (const EntryId entry : tree_.Node(Node(d)).snapshots) {
      const CacheSnapshot& snapshot = tree_.Snapshot(entry);
      const int64_t tokens = d * kCacheBlockTokens + static_cast<int64_t>(snapshot.tail.size());
      if (tokens <= best.tokens || !Continues(d, snapshot.tail, snapshot.key)) continue;
      best = {.tokens = tokens, .depth = d, .key = snapshot.key, .entry = entry};
    }
  }
  return best;
}

SnapshotChoice CacheSearch::BestOnDisk(int64_t d, int64_t tail_min,
                                       std::span<const CacheKey> skipped) const {
  SnapshotChoice best;
  const auto records = store_->Children(Key(d), RecordKind::kSnapshot, kDiskCandidatesMax);
  for (const RecordInfo& record : records) {
    const int64_t tail = static_cast<int64_t>(record.tokens.size());
    const int64_t tokens = d * kCacheBlockTokens + tail;
    if (tail < tail_min || tokens <= best.tokens) continue;
    if (IsIn(record.key, skipped) || !Continues(d, record.tokens, record.key)) continue;
    best = {.tokens = tokens, .depth = d, .key = record.key};
  }
  if (records.size() < kDiskCandidatesMax) return best;
  // There may be more than it told of. Asking for every length takes longer, but misses none.
  const int64_t tail_max = std::min(kCacheBlockTokens - 1, limit_ - d * kCacheBlockTokens);
  for (int64_t tail = tail_max; tail >= tail_min; --tail) {
    const int64_t tokens = d * kCacheBlockTokens + tail;
    if (tokens <= best.tokens) break;
    const CacheKey key = KeyOfSnapshot(d, tail);
    if (IsIn(key, skipped) || !store_->Contains(key)) continue;
    return {.tokens = tokens, .depth = d, .key = key};
  }
  return best;
}

SnapshotChoice CacheSearch::BestSnapshot(std::span<const CacheKey> skipped, bool with_disk) const {
  const SnapshotChoice best = BestInMemory();
  if (store_ == nullptr || !with_disk) return best;
  for (int64_t d = depth(); d >= 0; --d) {
    const int64_t tail_min = std::max<int64_t>(0, best.tokens + 1 - d * kCacheBlockTokens);
    if (tail_min >= kCacheBlockTokens || d * kCacheBlockTokens + tail_min > limit_) break;
    const SnapshotChoice found = BestOnDisk(d, tail_min, skipped);
    if (found.tokens >= 0) return found;
  }
  return best;
}

// ---- reasons ----

std::vector<DamagedRecord> CacheSearch::Damaged(int64_t snapshot_tokens) const {
  std::vector<DamagedRecord> damaged;
  if (store_ == nullptr) return damaged;
  for (int64_t d = depth(); d >= 0 && (d + 1) * kCacheBlockTokens > snapshot_tokens; --d) {
    for (const DamagedRecord& record : store_->DamagedAfter(Key(d))) {
      const int64_t end = record.end_position;
      const int64_t tail = end - d * kCacheBlockTokens;
      const bool needed = record.kind == RecordKind::kBlock
                              ? d == depth() && HasNext() && next_key_ == record.key
                              : end > snapshot_tokens && end <= limit_ && tail >= 0 &&
                                    tail < kCacheBlockTokens &&
                                    KeyOfSnapshot(d, tail) == record.key;
      if (needed) damaged.push_back(record);
    }
  }
  return damaged;
}

CacheSearch::Nearest CacheSearch::FindNearest() const {
  Nearest nearest;
  nearest.start = depth() * kCacheBlockTokens;
  nearest.rest = Tokens(depth(), limit_ - nearest.start);
  nearest.extras = Extras(depth(), kCacheBlockTokens);
  if (end() != kNoEntry) {
    const CacheNode& node = tree_.Node(end());
    int64_t compared = 0;
    for (EntryId child = node.first_child; child != kNoEntry && compared < kNearestChainsMax;
         child = tree_.Node(child).next_sibling, ++compared) {
      nearest.Consider(tree_.Node(child).tokens, false);
    }
    for (const EntryId entry : node.snapshots) {
      const CacheSnapshot& snapshot = tree_.Snapshot(entry);
      nearest.Consider(snapshot.tail, Continues(depth(), snapshot.tail, snapshot.key));
    }
  }
  if (store_ == nullptr) return nearest;
  for (const RecordKind kind : {RecordKind::kBlock, RecordKind::kSnapshot}) {
    for (const RecordInfo& record : store_->Children(Key(depth()), kind, kDiskCandidatesMax)) {
      const bool used =
          kind == RecordKind::kSnapshot && Continues(depth(), record.tokens, record.key);
      nearest.Consider(record.tokens, used);
    }
  }
  return nearest;
}

// An evicted snapshot is recognised by the prompt that ends where it did: one that is sent again.
bool CacheSearch::EvictedNext() const {
  if (HasNext()) return tree_.WasEvicted(next_key_);
  const int64_t tail = limit_ - depth() * kCacheBlockTokens;
  return tree_.WasEvicted(KeyOfSnapshot(depth(), tail));
}

// Looks at the first block only: what follows it has a name only together with it.
MissReason CacheSearch::KnownToOthers() const {
  if (depth() > 0 || chain_.tokens.size() < kCacheBlockTokens) return MissReason::kNone;
  const CacheKey content = ContentKey(Tokens(0, kCacheBlockTokens));
  if (tree_.HasContent(content)) return MissReason::kOtherTenant;
  if (store_ == nullptr) return MissReason::kNone;
  if (store_->HasContent(content, true)) return MissReason::kOtherTenant;
  if (store_->HasContent(content, false)) return MissReason::kOtherModel;
  return MissReason::kNone;
}

MissExplanation CacheSearch::Explain(int64_t snapshot_tokens) const {
  const int64_t start = depth() * kCacheBlockTokens;
  if (start == limit_ || snapshot_tokens == limit_) return {};
  if (EvictedNext()) return {.reason = MissReason::kEvicted};
  const Nearest nearest = FindNearest();
  const int64_t rest = limit_ - start;
  if (nearest.common == rest) return {.reason = MissReason::kBelowGranularity};
  // One of the tenant's own chains that has the block's tokens is nearer than anybody else's.
  const MissReason others = nearest.same_block ? MissReason::kNone : KnownToOthers();
  if (others != MissReason::kNone) return {.reason = others};
  if (depth() == 0 && nearest.common <= 0) return {.reason = MissReason::kCold};
  if (!nearest.differs) return {};
  return {.reason = MissReason::kDiverged, .first_difference = start + nearest.common};
}

}  // namespace minke
