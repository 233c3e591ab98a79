// Everything that changes the disk tier: opening and repairing it, appending records, evicting
// them, and the administration. Belongs to one thread (the store's storage thread, and before it
// starts the thread that opens the store).
//
// Errors: kInvalidInput means that the index cannot be trusted, and RebuildIndex() the way out;
// everything else that the disk refused, after which the tier takes no more writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "core/storage_system.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/segment_file.h"
#include "prefix_cache/store_directory.h"
#include "prefix_cache/store_index.h"

namespace minke {

// The numbers of a store, which several threads add to.
class StoreCounters {
 public:
  void Add(int64_t StoreStats::*field, int64_t amount);
  void Set(int64_t StoreStats::*field, int64_t value);
  // Switches the tier off; only the first warning counts.
  void TurnOff(const std::string& warning);
  StoreStats Get() const;

 private:
  mutable std::mutex mutex_;
  StoreStats stats_;  // guarded by mutex_
};

struct RecordToWrite {
  const RecordInfo* info = nullptr;
  std::span<const std::byte> payload;
  int64_t created_us = 0;
};

// What the writer needs from its owner.
struct WriterHooks {
  // Whether something that waits to be written hangs below this key: it is not evicted then.
  std::function<bool(const CacheKey&)> is_awaited;
  // A record that nobody was about to read is removed because it cannot be trusted.
  std::function<void(const IndexRow&)> damaged;
  // Readers let go of the index (false) and may open it again (true).
  std::function<void(bool)> index_available;
};

class StoreWriter {
 public:
  // Opens and repairs: publishes what the index lacks, removes what cannot be trusted.
  static Result<std::unique_ptr<StoreWriter>> Open(const StoreOptions& options,
                                                   StorageSystem& system, SegmentFiles& files,
                                                   StoreCounters& counters, WriterHooks hooks);

  // Appends, syncs, publishes. Records for which eviction makes no room are skipped and counted.
  Status Write(std::span<const RecordToWrite> records);
  Status Touch(const std::unordered_map<CacheKey, int64_t, CacheKeyHash>& used_us);
  // Removes a record that a reader found damaged, unless it has moved or gone since.
  Status RemoveDamaged(const IndexRow& row);
  // A segment's file is gone: so are its records.
  Status ForgetSegment(int64_t segment);
  // Throws the index away and makes it again from the segments.
  Status RebuildIndex();

  // Removes the records that VerifyRecords() found damaged.
  Status RemoveDamaged(const std::vector<IndexRow>& rows);
  Result<int64_t> Gc();
  Result<int64_t> Forget(const CacheKey& tenant);
  Result<BlockStore::ImportReport> Import(const std::string& path);

  // Empties the index's log: when there is nothing else to do.
  Status Rest();

  // Bytes that one batch should not exceed, so that eviction goes in small steps.
  int64_t BatchBytes() const;

 private:
  struct OlderFirst {
    bool operator()(const IndexRow& a, const IndexRow& b) const;
  };
  using Candidates = std::set<IndexRow, OlderFirst>;

  StoreWriter(const StoreOptions& options, StorageSystem& system, SegmentFiles& files,
              StoreCounters& counters, WriterHooks hooks);

  // ---- store_recovery.cc ----
  Status CheckVersions(const StoreListing& listing);
  Result<bool> ReadSegmentHeader(int64_t number, SegmentHeader* header);
  Status CreateIndexFile(const std::string& path);
  Status OpenIndex();
  Status Reconcile(const StoreListing& listing);
  Status CheckRows(const StoreListing& listing);
  Result<bool> CheckSegment(int64_t number, const FileStatus& status);
  Status RepairHeader(int64_t number);
  Status ScanTail(int64_t number, int64_t begin, int64_t end);
  Status PublishFound(std::vector<IndexRow>* rows);
  Result<bool> PublishRow(const IndexRow& row);

  // ---- store_writer.cc ----
  Status WriteGroup(std::span<const RecordToWrite> records);
  Status AppendGroup(std::span<const RecordToWrite> records, std::vector<IndexRow>* rows);
  Status AppendPiece(std::span<const RecordToWrite> records, int64_t offset,
                     std::vector<IndexRow>* rows);
  Status PublishGroup(const std::vector<IndexRow>& rows);
  Status OpenActive();

  // ---- store_eviction.cc ----
  int64_t LogReserve() const;
  Result<bool> MakeRoom(int64_t bytes, int64_t records, int64_t snapshot_bytes);
  Result<int64_t> Evict(int64_t bytes, bool snapshots_only);
  Result<int64_t> EvictSegment();
  Status EvictInTransaction(int64_t bytes, bool snapshots_only, std::vector<IndexRow>* victims);
  Result<bool> MayEvict(const IndexRow& candidate);
  Status OfferParent(const IndexRow& victim, int64_t newest_us);
  Status Erase(const std::vector<PendingErasure>& erasures);
  Status EraseGap(const StorageFile& file, int64_t number, int64_t offset);
  Result<bool> DropIfEmpty(int64_t number);
  Status Overwrite(const StorageFile& file, int64_t offset, int64_t bytes);

  // ---- store_writer.cc ----
  Status RemoveRows(const std::vector<IndexRow>& rows);
  Status WithdrawRows(const std::vector<IndexRow>& rows);
  Status Measure(int64_t number);
  Result<int64_t> DiskBytes();
  Result<int64_t> DiskBytes(const StoreListing& listing);
  void Count(const IndexRow& row, int64_t sign);
  void PublishTotals();
  int64_t Now() const;

  // ---- store_admin.cc ----
  Status Compact(int64_t number);
  Status RemoveOrphans();
  Status FreeGaps();
  Result<int64_t> ForgetInSegment(int64_t number, const CacheKey& tenant);
  Result<std::map<int64_t, int64_t>> PlacesOf(int64_t number, const CacheKey& tenant);

  const StoreOptions options_;
  StorageSystem& system_;
  SegmentFiles& files_;
  StoreCounters& counters_;
  const WriterHooks hooks_;
  std::string directory_;
  StorageFile lock_;
  std::optional<StoreIndex> index_;

  StorageFile active_;  // the segment that is appended to
  int64_t active_number_ = -1;
  int64_t active_end_ = 0;
  int64_t next_number_ = 1;
  std::map<int64_t, int64_t> segment_bytes_;  // disk blocks by number
  int64_t other_bytes_ = 0;                   // of files that are not the store's
  // What the directory took before opening tidied it up; empty once something was added since.
  std::optional<int64_t> opened_bytes_;

  Candidates leaves_;  // what to evict next, found some time ago: each is checked again
  Candidates snapshots_;
  int64_t leaves_until_us_ = 0;  // records used later were not looked at
  int64_t snapshots_until_us_ = 0;

  bool punches_ = true;  // whether the file system frees parts of files

  int64_t blocks_ = 0;
  int64_t snapshot_count_ = 0;
  int64_t foreign_ = 0;
  int64_t row_bytes_ = 0;
  int64_t snapshot_payload_bytes_ = 0;
  int rebuilds_ = 0;
};

// How often one process throws the index away before it gives up on the disk.
inline constexpr int kIndexRebuildsMax = 3;

}  // namespace minke
