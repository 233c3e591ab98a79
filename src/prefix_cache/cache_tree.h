// What the prefix cache holds in memory: blocks as a tree, snapshots below them, what both take,
// and which of them goes when there is no room. It knows nothing about prompts or lookups.
//
// A root stands for the beginning of a tenant's chains and holds no rows. It exists as long as
// something hangs below it. Every node and every snapshot charges kCacheNodeBytes to the pool of
// rows; the bytes of rows and snapshots are blocks of their pools.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/block_pool.h"
#include "core/result.h"
#include "prefix_cache/block_key.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/eviction.h"
#include "prefix_cache/prefix_cache.h"

namespace minke {

// The newest kEvictedKeysMax keys that were evicted and have not come back. They live much longer
// than what requests allocate, so they lie together: strewn among it they would keep its pages.
class EvictedKeys {
 public:
  void Add(const CacheKey& key);
  void Remove(const CacheKey& key);
  bool Contains(const CacheKey& key) const { return stamps_.contains(key); }
  size_t size() const { return order_.size(); }  // remembered, come back or not

 private:
  // A key that came back and went again stands in order_ twice; its last stamp is the valid one.
  struct Entry {
    CacheKey key;
    uint64_t stamp = 0;
  };
  std::vector<Entry> order_;  // a ring, once it is full
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::unordered_map<CacheKey, uint64_t, CacheKeyHash> stamps_{&nodes_};
  uint64_t last_stamp_ = 0;
};

struct CacheNode {
  CacheKey key;
  EntryId parent = kNoEntry;  // kNoEntry: a root
  EntryId first_child = kNoEntry;
  EntryId next_sibling = kNoEntry;
  EntryId previous_sibling = kNoEntry;
  int64_t depth = 0;  // blocks of the chain up to and with this one
  int64_t pins = 0;
  std::vector<int32_t> tokens;     // [kCacheBlockTokens]; none in a root
  BlockRef block;                  // none in a root
  CacheKey content;                // ContentKey(tokens) of a chain's first block, otherwise zero
  std::vector<EntryId> snapshots;  // in the order they came
  bool stored = false;             // was seen on disk, or offered to it, since it came to memory
};

struct CacheSnapshot {
  CacheKey key;
  EntryId node = kNoEntry;
  std::vector<int32_t> tail;  // [0 to kCacheBlockTokens - 1] tokens after the node
  BlockRef bytes;
  int64_t size_bytes = 0;  // of them, in use
};

class CacheTree {
 public:
  // store may be null; it is waited for where memory is held only until it is written.
  CacheTree(BlockPool& rows, BlockPool& snapshots, BlockStore* store);
  ~CacheTree();
  CacheTree(const CacheTree&) = delete;
  CacheTree& operator=(const CacheTree&) = delete;

  EntryId FindNode(const CacheKey& key) const;  // kNoEntry if it is not there
  EntryId FindSnapshot(const CacheKey& key) const;
  const CacheNode& Node(EntryId id) const { return *nodes_[static_cast<size_t>(id)]; }
  void MarkStored(EntryId id) { MutableNode(id).stored = true; }
  const CacheSnapshot& Snapshot(EntryId id) const { return *snapshots_[static_cast<size_t>(id)]; }

  // New entries; evict others if need be, never their parents. kNoEntry where there is no room for
  // their kCacheNodeBytes. REQUIRES that the key is not there.
  EntryId AddRoot(const CacheKey& key);
  EntryId AddBlock(EntryId parent, const CacheKey& key, std::span<const int32_t> tokens,
                   BlockRef block);
  EntryId AddSnapshot(EntryId parent, const CacheKey& key, std::span<const int32_t> tail,
                      BlockRef bytes, int64_t size_bytes);
  // Memory for one more entry; empty where there is no room. A block's kCacheNodeBytes are
  // provided for, too.
  BlockRef AllocateBlock();
  BlockRef AllocateSnapshot();

  // A pinned node and those above it stay. Pins count. Pinning a root keeps its number valid.
  void Pin(EntryId id);
  void Unpin(EntryId id);
  void TouchChain(EntryId end);  // from its end to its root
  void TouchSnapshot(EntryId id);

  // See PrefixCache::MakeRoom().
  [[nodiscard]] bool MakeRoom(int64_t bytes);
  void DropUnpinned();

  bool WasEvicted(const CacheKey& key) const { return evicted_.Contains(key); }
  // Whether some chain begins with these tokens, of whatever root.
  bool HasContent(const CacheKey& content) const { return contents_.contains(content); }

  int64_t block_count() const { return block_count_; }
  int64_t snapshot_count() const { return snapshot_count_; }
  int64_t block_bytes() const { return rows_.block_bytes(); }
  int64_t snapshot_bytes_max() const { return snapshot_pool_.block_bytes(); }
  int64_t snapshot_bytes() const { return snapshot_bytes_; }  // in use
  int64_t blocks_evicted() const { return blocks_evicted_; }
  int64_t snapshots_evicted() const { return snapshots_evicted_; }

  Status Audit() const;

 private:
  CacheNode& MutableNode(EntryId id) { return *nodes_[static_cast<size_t>(id)]; }
  EntryId AddNode(std::unique_ptr<CacheNode> node);
  void Link(EntryId id);
  void RemoveNode(EntryId id);
  void RemoveRootIfEmpty(EntryId id);
  void EvictBlock(EntryId id);
  void EvictSnapshot(EntryId id);
  [[nodiscard]] bool ChargeEntry();
  bool EvictBlocksUntil(int64_t bytes);
  bool EvictOneSnapshot();
  BlockRef TryAllocateSnapshot();
  int64_t Room() const;
  int64_t ReclaimableBytes() const;
  Status AuditNode(EntryId id) const;
  Status AuditLinks(EntryId id) const;
  Status AuditSnapshot(EntryId id) const;
  Status AuditCounters() const;
  Status AuditPools() const;
  Status AuditPolicy(EvictionPolicy& policy, std::vector<EntryId> expected) const;

  BlockPool& rows_;
  BlockPool& snapshot_pool_;
  BlockStore* store_;
  std::unique_ptr<EvictionPolicy> policy_;           // of blocks; roots are not in it
  std::unique_ptr<EvictionPolicy> snapshot_policy_;  // snapshots have no parents in it
  // Numbers of entries are places here; those of removed entries are used again.
  std::vector<std::unique_ptr<CacheNode>> nodes_;
  std::vector<std::unique_ptr<CacheSnapshot>> snapshots_;
  std::vector<EntryId> free_nodes_;
  std::vector<EntryId> free_snapshots_;
  std::unordered_map<CacheKey, EntryId, CacheKeyHash> node_of_key_;
  std::unordered_map<CacheKey, EntryId, CacheKeyHash> snapshot_of_key_;
  std::unordered_map<CacheKey, int64_t, CacheKeyHash> contents_;  // chains that begin with them
  EvictedKeys evicted_;
  int64_t root_count_ = 0;
  int64_t block_count_ = 0;
  int64_t snapshot_count_ = 0;
  int64_t snapshot_bytes_ = 0;
  int64_t charged_bytes_ = 0;
  int64_t blocks_evicted_ = 0;
  int64_t snapshots_evicted_ = 0;
};

}  // namespace minke
