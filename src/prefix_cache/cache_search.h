// One prompt's way through what is known: keys of its blocks, the best snapshot, and why there is
// not more. Reads memory and the index of the disk, no payloads, and changes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "prefix_cache/cache_tree.h"
#include "prefix_cache/prefix_cache.h"

namespace minke {

// Where a snapshot that continues the prompt is to be had.
struct SnapshotChoice {
  int64_t tokens = -1;  // of the chain that it continues; -1: there is none
  int64_t depth = 0;    // blocks before its tail
  CacheKey key;
  EntryId entry = kNoEntry;  // in memory; kNoEntry: on disk
};

struct MissExplanation {
  MissReason reason = MissReason::kNone;
  int64_t first_difference = -1;
};

class CacheSearch {
 public:
  // At most `limit_tokens` of the chain are looked for. store may be null. All outlive the search.
  CacheSearch(const CacheTree& tree, BlockStore* store, const CacheKey& fingerprint,
              const CacheChain& chain, int64_t limit_tokens);

  // Goes as far as memory does.
  void WalkMemory();
  // Whether another full block lies within the limit; its key and tokens.
  bool HasNext() const { return (depth() + 1) * kCacheBlockTokens <= limit_; }
  const CacheKey& next_key() const { return next_key_; }  // REQUIRES HasNext()
  std::span<const int32_t> NextTokens() const { return Tokens(depth(), kCacheBlockTokens); }
  // The next block is known: in memory as `node`, or on disk (kNoEntry).
  void Extend(EntryId node);
  void SetRoot(EntryId root) { nodes_[0] = root; }

  int64_t limit() const { return limit_; }
  int64_t depth() const { return static_cast<int64_t>(keys_.size()) - 1; }  // blocks known
  // Of the first d blocks, d = 0 (the root) to depth(). Nodes are kNoEntry outside memory.
  const CacheKey& Key(int64_t d) const { return keys_[static_cast<size_t>(d)]; }
  EntryId Node(int64_t d) const { return nodes_[static_cast<size_t>(d)]; }
  EntryId end() const { return nodes_.back(); }
  // `count` tokens from the end of the first d blocks on.
  std::span<const int32_t> Tokens(int64_t d, int64_t count) const;
  CacheKey KeyOfSnapshot(int64_t d, int64_t tail) const;  // `tail` tokens after d blocks

  // The longest snapshot that continues the prompt. Disk is asked only for longer ones than memory
  // has, and not for the keys of `skipped`; `with_disk` false leaves it out.
  SnapshotChoice BestSnapshot(std::span<const CacheKey> skipped, bool with_disk) const;
  // Records of the prompt that would have led further than that snapshot (-1: none), if the disk
  // had not damaged them.
  std::vector<DamagedRecord> Damaged(int64_t snapshot_tokens) const;
  // Why no more was found, given that a snapshot of snapshot_tokens is used (-1: none).
  MissExplanation Explain(int64_t snapshot_tokens) const;

 private:
  struct Nearest;
  void FindNextKey();
  std::span<const ExtraInput> Extras(int64_t d, int64_t count) const;
  bool Continues(int64_t d, std::span<const int32_t> tail, const CacheKey& key) const;
  SnapshotChoice BestInMemory() const;
  SnapshotChoice BestOnDisk(int64_t d, int64_t tail_min, std::span<const CacheKey> skipped) const;
  Nearest FindNearest() const;
  bool EvictedNext() const;
  MissReason KnownToOthers() const;

  const CacheTree& tree_;
  BlockStore* store_;
  const CacheChain& chain_;
  int64_t limit_;
  std::vector<CacheKey> keys_;
  std::vector<EntryId> nodes_;
  CacheKey next_key_;
};

}  // namespace minke
