// The prefix cache: which leading tokens of a prompt have their rows in memory or on disk, and
// which snapshot of working state is the last one on the way (serving.md 1.8, 7.7). It stores
// opaque bytes and knows neither tensors nor what a token means.
//
// Two kinds of entries. A block holds the rows of kCacheBlockTokens tokens and hangs below the
// block before it; blocks of the same beginning are shared. A snapshot hangs below a block (or the
// root) and 0 to 127 more tokens; it holds everything needed to continue there: the rows of those
// tokens and the part of the state that does not grow. Memory is a tree of both; the disk, where
// there is one, holds more of them. A lookup walks memory first, then disk, and brings what it
// finds on disk into memory.
//
// Thread safety: one thread (the engine's). The store writes on its own thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/block_pool.h"
#include "core/result.h"
#include "prefix_cache/block_key.h"
#include "prefix_cache/block_store.h"

namespace minke {

// What memory of the process an entry of the tree takes besides its bytes: charged to the pool.
inline constexpr int64_t kCacheNodeBytes = 1024;
// Keys of evicted blocks that are remembered, to tell an eviction from a prompt never seen.
inline constexpr size_t kEvictedKeysMax = 65536;

// The beginning of a prompt, or of a running sequence.
struct CacheChain {
  CacheKey tenant;  // TenantKey()
  std::span<const int32_t> tokens;
  std::span<const ExtraInput> extras;  // ascending by position
};

// Why less was cached than a caller may have hoped.
enum class MissReason {
  kNone,              // everything known about these tokens was used
  kCold,              // nothing that begins like this was ever seen
  kDiverged,          // a known chain differs from first_difference on
  kEvicted,           // it was known and had to go
  kOtherTenant,       // known to another tenant only
  kOtherModel,        // known under another model, version, numeric or prefill mode only
  kBelowGranularity,  // what is known ends within a block that has no snapshot in it
  kDamaged,           // its record on disk could not be trusted
  kNoSnapshot,        // rows are known further than the last snapshot (set by the engine)
  kNoRoom,            // known on disk, but memory has no room for it
};
const char* MissReasonName(MissReason reason);  // "none", "cold", "diverged", "evicted", ...

enum class CacheTier { kNone, kRam, kDisk };
const char* CacheTierName(CacheTier tier);  // "none", "ram", "disk"

struct CacheMatch {
  std::vector<BlockRef> blocks;  // rows of the first blocks.size() * kCacheBlockTokens tokens
  int64_t disk_blocks = 0;       // of them, read from disk by this lookup: the last ones
  // The last snapshot whose tokens are all in the prompt; empty if there is none.
  BlockRef snapshot;
  int64_t snapshot_bytes = 0;
  int64_t snapshot_tokens = 0;  // length of the chain that it continues
  CacheTier snapshot_tier = CacheTier::kNone;
  MissReason reason = MissReason::kNone;
  int64_t first_difference = -1;  // index of the first token that no known chain has; -1: unknown
  // The disk has more than this lookup was allowed to read. Only `blocks` and `disk_blocks` are
  // filled in: ask again, with what was found so far pinned.
  bool more_on_disk = false;
};

// A lookup in several calls, so that none of them keeps its caller long. The same object for all
// calls about one prompt.
struct DiskReading {
  int64_t blocks_max = 0;   // that one call may read from disk; at least 1
  int64_t blocks_read = 0;  // by all calls so far
};

// What a lookup would find, without reading payloads or changing anything.
struct CacheExplanation {
  int64_t ram_tokens = 0;  // of the longest known chain of blocks, by tier
  int64_t disk_tokens = 0;
  int64_t snapshot_tokens = 0;
  CacheTier snapshot_tier = CacheTier::kNone;
  MissReason reason = MissReason::kNone;
  int64_t first_difference = -1;
};

struct PrefixCacheStats {
  int64_t blocks = 0;  // in memory
  int64_t snapshots = 0;
  int64_t block_bytes = 0;
  int64_t snapshot_bytes = 0;
  int64_t pinned_chains = 0;
  int64_t blocks_evicted = 0;  // from memory, since the start
  int64_t snapshots_evicted = 0;
  int64_t lookups = 0;
  int64_t ram_hit_tokens = 0;
  int64_t disk_hit_tokens = 0;
};

class PrefixCache;

// Keeps a chain in memory for as long as it lives. Movable. Does not outlive the cache.
class ChainPin {
 public:
  ChainPin() = default;
  ~ChainPin();
  ChainPin(ChainPin&& other) noexcept;
  ChainPin& operator=(ChainPin&& other) noexcept;

 private:
  friend class PrefixCache;
  ChainPin(PrefixCache* cache, int64_t node) : cache_(cache), node_(node) {}
  PrefixCache* cache_ = nullptr;
  int64_t node_ = -1;
};

class PrefixCache {
 public:
  // rows: the pool of blocks; snapshots: the pool of snapshots, whose block size is the largest
  // snapshot. store may be null. All outlive the cache.
  PrefixCache(const CacheKey& fingerprint, BlockPool& rows, BlockPool& snapshots,
              BlockStore* store);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Finds the longest known beginning of the chain, at most limit_tokens of it. What it needs from
  // disk it brings into memory, which may evict other, unpinned chains. A damaged record shortens
  // the match. `pin` keeps the match in memory. `reading`, if given, bounds what is read at once;
  // its pin must not be null then.
  CacheMatch Lookup(const CacheChain& chain, int64_t limit_tokens, ChainPin* pin,
                    DiskReading* reading = nullptr);
  CacheExplanation Explain(const CacheChain& chain, int64_t limit_tokens) const;

  // Makes the full blocks of the chain known; blocks[i] are the rows of its i-th. Blocks that are
  // known already stay as they are. Writes new ones behind to the store. Moves `pin` to the end of
  // the chain. Blocks for which memory has no room (kCacheNodeBytes each) are left out.
  void InsertBlocks(const CacheChain& chain, std::span<const BlockRef> blocks, ChainPin* pin);
  // Room for one snapshot, evicting others if need be; empty where the budget holds not even one.
  BlockRef AllocateSnapshot();
  // Makes a snapshot at the end of the chain known; `bytes` of it count. Its full blocks must be
  // known, otherwise it is dropped. Writes it behind to the store.
  void InsertSnapshot(const CacheChain& chain, BlockRef snapshot, int64_t bytes);

  // Evicts unpinned chains, their ends first, until the pool of rows has `bytes` of room. False if
  // pinned chains and running sequences hold too much of it.
  [[nodiscard]] bool MakeRoom(int64_t bytes);
  // Forgets everything in memory that is not pinned. The disk keeps what it has.
  void DropMemory();

  PrefixCacheStats Stats() const;
  // Walks everything and compares it with the counters, the pools and the policy: an error names
  // the first thing that does not hold.
  Status Audit() const;

 private:
  friend class ChainPin;
  ChainPin PinChain(int64_t node);
  void Unpin(int64_t node);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke
