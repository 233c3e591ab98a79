// The index of the disk tier: an SQLite database (WAL) that knows where each record lies, and
// nothing that the segments do not know too. It can be thrown away and made again from them.
//
// Errors: kInvalidInput means that the database cannot be trusted (damaged, of another version or
// shape) and should be thrown away; kIo that the disk refused.
//
// Thread safety: none; an index belongs to one thread or stands under its owner's mutex. Two
// indexes may be open on one file, one of them writing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/record_format.h"

namespace minke {

// A checkpoint follows at this length, so that the log stays short (pages of 4096 B).
inline constexpr int kIndexLogPages = 96;
// An index of up to this size is checked whole when it is opened (about 0.1 s).
inline constexpr int64_t kIndexCheckBytesMax = int64_t{16} << 20;

struct IndexRow {
  int64_t segment = 0;
  int64_t offset = 0;
  RecordKind kind = RecordKind::kBlock;
  CacheKey key;
  CacheKey parent;
  CacheKey fingerprint;
  CacheKey tenant;
  CacheKey content;  // of a chain's first block only; otherwise zero
  int64_t end_position = 0;
  int64_t token_count = 0;
  int64_t payload_bytes = 0;
  int64_t created_us = 0;
  int64_t last_used_us = 0;
};

// What the row's record takes of its segment.
inline int64_t RowBytes(const IndexRow& row) {
  return RecordBytes(row.token_count, row.payload_bytes);
}

// A stretch of a segment that a removed record held and whose bytes are still to be erased.
struct PendingErasure {
  int64_t segment = 0;
  int64_t offset = 0;
};

// What is alive around a place in a segment.
struct LiveNeighbours {
  std::optional<int64_t> previous_end;
  std::optional<int64_t> next_begin;
};

enum class IndexMode {
  kCreateOrOpen,  // the one writer
  kReader,        // beside a writer of this process
  kLookOnly,      // of another process: changes nothing, not even beside the file
};

struct IndexDatabase;  // the connection

class StoreIndex {
 public:
  static Result<StoreIndex> Open(const std::string& path, IndexMode mode);
  ~StoreIndex();
  StoreIndex(StoreIndex&& other) noexcept;
  StoreIndex& operator=(StoreIndex&& other) noexcept;

  // ---- reading ----
  Result<std::optional<IndexRow>> Find(const CacheKey& key, const CacheKey& fingerprint);
  // Latest used first.
  Result<std::vector<IndexRow>> Children(const CacheKey& parent, const CacheKey& fingerprint,
                                         RecordKind kind, size_t limit);
  Result<bool> HasChildren(const CacheKey& key);
  Result<bool> HasContent(const CacheKey& content, const CacheKey& fingerprint, bool same);
  // Records without children (neither blocks nor snapshots), the least recently used first, of a
  // chain its end first.
  Result<std::vector<IndexRow>> OldestLeaves(size_t limit);
  Result<std::vector<IndexRow>> OldestSnapshots(size_t limit);
  // Blocks and snapshots whose block before is gone.
  Result<std::vector<IndexRow>> Orphans();
  // In the order of segment and offset. Fails with kInvalidInput at a row that cannot be true.
  Status ForEach(const std::function<Status(const IndexRow&)>& visit);
  Result<std::vector<IndexRow>> RowsOfSegment(int64_t segment);
  Result<LiveNeighbours> Neighbours(int64_t segment, int64_t offset);
  // Number and bytes scanned of each known segment.
  Result<std::map<int64_t, int64_t>> Segments();
  Result<std::vector<PendingErasure>> Erasures();

  // ---- writing ----
  // Runs `work` as one transaction: all of it or, if it fails, nothing. `durable` also survives a
  // loss of power; everything survives the end of the process.
  Status Transaction(bool durable, const std::function<Status()>& work);
  // False if the key (of this fingerprint) is there already.
  Result<bool> Insert(const IndexRow& row);
  // Removes the row and notes its bytes to be erased. False if there is none.
  Result<bool> Remove(int64_t segment, int64_t offset);
  Status SetSegment(int64_t segment, int64_t scanned_bytes);
  Status DropSegment(int64_t segment);  // with its rows and erasures
  Status AddErasure(const PendingErasure& erasure);
  Status DropErasure(const PendingErasure& erasure);
  // A later use; an earlier one changes nothing.
  Status Touch(const CacheKey& key, const CacheKey& fingerprint, int64_t used_us);
  Status DropUnusedNames();
  // Empties the log into the tables.
  Status Checkpoint();
  // Gives free pages back and empties the log.
  Status Shrink();

 private:
  explicit StoreIndex(std::unique_ptr<IndexDatabase> database);
  std::unique_ptr<IndexDatabase> database_;
};

}  // namespace minke
