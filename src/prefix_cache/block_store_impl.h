// What a BlockStore is made of. For block_store.cc and block_store_admin.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/storage_system.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/damaged_records.h"
#include "prefix_cache/store_directory.h"
#include "prefix_cache/store_queue.h"
#include "prefix_cache/store_view.h"
#include "prefix_cache/store_writer.h"

namespace minke {

// SQLite keeps a database of this name in memory.
inline constexpr const char* kNoIndexFile = ":memory:";

// Lock order: a thread holds at most one of queue's and read_mutex at a time.
struct BlockStore::Impl {
  Impl(const StoreOptions& options_in, std::string directory,
       std::unique_ptr<StorageSystem> posix_in)
      : options(options_in),
        posix(std::move(posix_in)),
        system(options_in.system != nullptr ? *options_in.system : *posix),
        files(system, directory),
        queue(options.queue_bytes, options.write_bytes_per_hour),
        looks_only(options.read_only) {
    options.directory = std::move(directory);
  }

  // ---- opening ----
  Status OpenToLook();
  Status OpenToWrite();
  // The tier is off from the beginning: the disk refused what opening needs.
  void GoWithout(const Error& error);

  // ---- reading, any thread ----
  Result<StoreIndex> OpenIndex() const;
  Status OpenReader();
  std::optional<IndexRow> FindRow(const CacheKey& key);
  // As FindRow(), or from memory what it found some time ago: the record may have gone since, which
  // reading it shows.
  std::optional<IndexRow> RecallRow(const CacheKey& key);
  template <typename Query>
  void Ask(const Query& query);
  bool HasReader() {
    const std::lock_guard<std::mutex> lock(read_mutex);
    return reader.has_value();
  }
  void Condemn(const IndexRow& row);
  // A later prompt may have needed it.
  void NoteDamage(const IndexRow& row);
  void HandleReadFailure(const IndexRow& row, const Error& error);
  bool StillThere(const IndexRow& row);
  std::string IndexPath() const { return JoinPath(options.directory, kIndexName); }

  // ---- the storage thread ----
  void Run();
  void WriteBatch(const std::vector<std::unique_ptr<QueuedRecord>>& batch);
  void WriteTouches();
  void Handle(const Status& status);
  void TurnOff(const Error& error);

  // Runs `work` on the storage thread, after everything queued so far, and waits for it.
  template <typename T>
  Result<T> OnStorageThread(const std::function<Result<T>()>& work);
  // A view of its own, beside what the storage thread does.
  template <typename T>
  Result<T> WithView(const std::function<Result<T>(const StoreView&)>& work);

  StoreOptions options;
  const std::unique_ptr<StorageSystem> posix;
  StorageSystem& system;  // the caller's, or posix
  SegmentFiles files;
  StoreCounters counters;
  DamagedRecords damaged;
  StoreQueue queue;
  bool looks_only;             // nothing may be changed; fixed once the store is open
  bool holds_nothing = false;  // as well: there is neither an index nor a segment

  std::mutex read_mutex;
  std::optional<StoreIndex> reader;  // guarded by read_mutex; empty while the index is made again
  // Rows found lately, at most kRowsKept. Guarded by read_mutex.
  std::unordered_map<CacheKey, IndexRow, CacheKeyHash> rows;
  // Places found damaged and not yet removed. Guarded by read_mutex.
  std::set<std::pair<int64_t, int64_t>> condemned;

  std::unique_ptr<StoreWriter> writer;  // the storage thread's, once that runs
  std::jthread thread;
};

}  // namespace minke
