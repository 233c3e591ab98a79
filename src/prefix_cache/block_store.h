// The disk tier: opaque payloads under keys in append-only segment files, with an SQLite index
// (docs/formats/block_store.md). A record is written, synced, and only then published in the
// index; what the index lacks after a crash is found by scanning the segments' ends.
//
// A record that is damaged, foreign, truncated or of another version is a miss, is counted, and is
// removed once. A disk that fails (full, read-only, gone) switches the tier off with one warning;
// the caller goes on without it.
//
// Thread safety: all methods may be called from any thread. Put() returns at once; a storage
// thread owned by the store writes behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_pool.h"
#include "core/result.h"
#include "prefix_cache/block_key.h"

namespace minke {

class StorageSystem;  // core/storage_system.h: the files as the store sees them; tests make it fail

// Values are part of the format; do not change.
enum class RecordKind : uint32_t {
  kBlock = 1,     // rows of kCacheBlockTokens tokens
  kSnapshot = 2,  // working state after a block and 0 to kCacheBlockTokens - 1 tokens more
};

// What a record says about itself, apart from its payload.
struct RecordInfo {
  RecordKind kind = RecordKind::kBlock;
  CacheKey key;
  CacheKey parent;           // key of the block before; the chain's root for the first
  CacheKey fingerprint;      // of the model and everything else that determines the bytes
  CacheKey tenant;           // TenantKey()
  CacheKey content;          // ContentKey() of the chain's first block; zero if the chain has none
  int64_t end_position = 0;  // tokens of the chain up to and with this record
  std::vector<int32_t> tokens;  // of this record: kCacheBlockTokens, or the tail of a snapshot
  int64_t payload_bytes = 0;
};

struct StoreOptions {
  std::string directory;
  CacheKey fingerprint;  // records of another one are foreign: kept for their own model, never read
  int64_t budget_bytes = int64_t{64} << 30;          // real disk blocks of everything in directory
  int64_t snapshot_budget_bytes = int64_t{8} << 30;  // of it, for snapshots
  int64_t write_bytes_per_hour = int64_t{64} << 30;  // records beyond it are not written
  int64_t queue_bytes = int64_t{256} << 20;          // payloads waiting for the storage thread
  int64_t segment_bytes = int64_t{64} << 20;         // a new segment begins beyond it
  bool read_only = false;  // for `minke cache ls`: takes no lock, starts no thread, writes nothing
  StorageSystem* system = nullptr;  // null: the real one
  std::function<int64_t()> now_us;  // microseconds of the wall clock; empty: the real one
};

// An empty index with its log takes some 100 KiB; the rest is for records.
inline constexpr int64_t kStoreBudgetBytesMin = int64_t{1} << 20;

struct StoreStats {
  bool enabled = true;
  std::string warning;        // why it is switched off, a whole sentence; empty while it works
  int64_t block_records = 0;  // of every fingerprint, as the three below
  int64_t snapshot_records = 0;
  int64_t foreign_records = 0;  // of the records, those of other fingerprints
  int64_t row_bytes = 0;        // payloads of block records
  int64_t snapshot_bytes = 0;   // payloads of snapshot records
  int64_t disk_bytes = 0;       // st_blocks of every file in the directory
  int64_t segments = 0;
  // Since the store was opened:
  int64_t records_written = 0;
  int64_t bytes_written = 0;
  int64_t bytes_read = 0;
  int64_t reads_hit = 0;
  int64_t reads_missed = 0;
  int64_t records_damaged = 0;  // found damaged, truncated or outdated, and removed
  int64_t records_evicted = 0;
  int64_t records_recovered = 0;  // published by the scan at opening
  int64_t records_skipped = 0;    // not written: queue full or the cap per hour reached
  int64_t io_errors = 0;
  int64_t index_rebuilds = 0;  // the index could not be trusted and was made again
  int64_t scan_us = 0;         // how long opening took to scan segments
};

enum class ReadOutcome {
  kHit,
  kMiss,     // not there
  kDamaged,  // was there, could not be trusted, is removed
  kOff,      // the tier is switched off
};

// A record that this process found damaged, truncated, outdated or gone when nobody had asked for
// it.
struct DamagedRecord {
  RecordKind kind = RecordKind::kBlock;
  CacheKey key;
  CacheKey parent;
  int64_t end_position = 0;
};

struct VerifyReport {
  int64_t records_checked = 0;
  int64_t records_damaged = 0;
  int64_t bytes_checked = 0;
  int64_t segments_damaged = 0;       // their own headers are damaged or of another version
  int64_t orphan_bytes = 0;           // in segments, not zero and belonging to no indexed record
  std::vector<std::string> problems;  // whole sentences, at most kVerifyProblemsMax
};
inline constexpr size_t kVerifyProblemsMax = 100;

// One line of `minke cache ls`: a chain's last record.
struct ListedRecord {
  RecordInfo info;  // tokens are left out
  int64_t created_us = 0;
  int64_t last_used_us = 0;
  std::string segment;
  int64_t offset = 0;
};

class BlockStore {
 public:
  // Creates the directory (0700) if it is missing. Errors name the directory and the way out: it
  // is in use by another process, belongs to somebody else, is a symbolic link or holds one, was
  // written by a newer version, cannot be made; or the budget is below kStoreBudgetBytesMin. A
  // directory that is ours and that the disk does not let us use (read-only, no rights, full, no
  // descriptors left) is no error: the tier is off, and Stats().warning says why.
  static Result<std::unique_ptr<BlockStore>> Open(const StoreOptions& options);
  // Writes what is queued, then stops.
  ~BlockStore();
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  // ---- serving ----
  bool Contains(const CacheKey& key);  // published or queued, of this fingerprint
  // Queues a record; the bytes stay alive through `payload`. info.payload_bytes of them count.
  // Does nothing if the key is there, or if the tier is off; counts if it has to skip.
  void Put(RecordInfo info, BlockRef payload);
  // Fills `out` (info.payload_bytes of it) and `info`. Every byte is checked before kHit.
  ReadOutcome Read(const CacheKey& key, std::span<std::byte> out, RecordInfo* info);
  // Records directly after `parent`: snapshots, or blocks; at most `limit`, latest used first.
  std::vector<RecordInfo> Children(const CacheKey& parent, RecordKind kind, size_t limit);
  // Damaged records directly after `parent`, until they are forgotten or written again.
  std::vector<DamagedRecord> DamagedAfter(const CacheKey& parent) const;
  // Somebody who needed it was told.
  void ForgetDamage(const DamagedRecord& record);
  // Whether records of another tenant or fingerprint begin with the same block of tokens.
  bool HasContent(const CacheKey& content, bool same_fingerprint);
  // The keys were used: eviction takes others first. Written to the index now and then, not each
  // time.
  void Touch(std::span<const CacheKey> keys);
  // Waits until everything queued so far is published or given up.
  void Flush();
  StoreStats Stats();

  // ---- administration ----
  // All records, or those of one tenant; order: chains, by end_position.
  Result<std::vector<ListedRecord>> List(const std::optional<CacheKey>& tenant, size_t limit);
  // Reads everything. With `remove`, what is damaged is removed.
  Result<VerifyReport> Verify(bool remove,
                              const std::function<void(int64_t done, int64_t total)>& progress);
  // Frees what no record needs, brings the directory under its budget, compacts. Returns the bytes
  // of disk freed; where nothing was written since opening, with those that opening freed.
  Result<int64_t> Gc();
  // Erases every record of a tenant, bytes included. Returns their number.
  Result<int64_t> Forget(const CacheKey& tenant);
  // Writes records as one segment-format file, or takes the valid ones of such a file in. Return
  // their number.
  Result<int64_t> Export(const std::string& path, const std::optional<CacheKey>& tenant);
  struct ImportReport {
    int64_t records = 0;
    int64_t damaged = 0;  // skipped
    int64_t known = 0;    // were there
  };
  Result<ImportReport> Import(const std::string& path);
  // Whether Import() would take the file: it begins as this version's exports do. Errors name it.
  // Needs no store, so that none is made for a wrong file.
  static Status CheckExported(const std::string& path);

 private:
  struct Impl;
  explicit BlockStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke
