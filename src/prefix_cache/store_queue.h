// What the storage thread has to do: records to write, jobs to run, uses to note. Bounded in bytes.
// Thread safety: all methods may be called from any thread, Wait() and Done() by one.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/block_pool.h"
#include "prefix_cache/block_store.h"

namespace minke {

// Uses that wait to be written, at most; they are noted at the latest after kTouchSeconds.
inline constexpr size_t kTouchesMax = 4096;
inline constexpr int64_t kTouchSeconds = 60;
// Without work for so long, the storage thread tidies up.
inline constexpr int64_t kRestMilliseconds = 500;

struct QueuedRecord {
  RecordInfo info;
  BlockRef payload;
  int64_t bytes = 0;  // on the disk
  int64_t created_us = 0;
};

// What Wait() found: a batch, or a job, or neither: then it is time to note uses. `stop`: and there
// will be nothing more; `rest`: there was nothing for a while.
struct StorageTask {
  std::vector<std::unique_ptr<QueuedRecord>> batch;
  std::function<void()> job;
  bool stop = false;
  bool rest = false;
};

// Bytes written during the last hour, counted by the minute.
class HourlyCap {
 public:
  explicit HourlyCap(int64_t bytes_per_hour) : bytes_per_hour_(bytes_per_hour) {}
  [[nodiscard]] bool Spend(int64_t bytes, int64_t now_us);

 private:
  static constexpr int64_t kMinutes = 61;  // the running one and sixty whole ones before it
  const int64_t bytes_per_hour_;
  std::array<int64_t, kMinutes> spent_ = {};
  int64_t minute_ = 0;  // of spent_[minute_ % kMinutes]
};

class StoreQueue {
 public:
  StoreQueue(int64_t bytes_max, int64_t bytes_per_hour);

  // ---- callers ----
  // False if it had to be skipped: no room in the queue, or the cap per hour is reached. A record
  // that is queued already, or a queue that is off, is no skip.
  [[nodiscard]] bool Add(RecordInfo info, BlockRef payload, int64_t now_us);
  bool Contains(const CacheKey& key) const;
  // Serves a record that is not written yet.
  bool Read(const CacheKey& key, std::span<std::byte> out, RecordInfo* info) const;
  std::vector<RecordInfo> Children(const CacheKey& parent, RecordKind kind, size_t limit) const;
  bool HasContent(const CacheKey& content) const;
  // Whether a queued record hangs below this key.
  bool IsAwaited(const CacheKey& key) const;
  void Touch(std::span<const CacheKey> keys, int64_t now_us);
  // Runs after everything queued so far.
  void AddJob(std::function<void()> job);
  void Flush();
  // Gives up what is queued and takes nothing more; jobs still run.
  void TurnOff();
  bool off() const;
  // Lets the storage thread finish what is there.
  void Stop();

  // ---- the storage thread ----
  // A batch of about so many bytes, at least one record.
  StorageTask Wait(int64_t batch_bytes);
  // The batch is published or given up.
  void Done(std::vector<std::unique_ptr<QueuedRecord>> batch);
  std::unordered_map<CacheKey, int64_t, CacheKeyHash> TakeTouches();

 private:
  struct Job {
    std::function<void()> work;
    uint64_t after = 0;  // records that must be done before
  };
  void Forget(const QueuedRecord& record);
  bool JobReady() const { return !jobs_.empty() && jobs_.front().after <= done_; }

  const int64_t bytes_max_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::condition_variable finished_;
  std::deque<std::unique_ptr<QueuedRecord>> records_;
  std::deque<Job> jobs_;
  // Of records_ and of the batch that is being written.
  std::unordered_map<CacheKey, const QueuedRecord*, CacheKeyHash> by_key_;
  std::unordered_map<CacheKey, int64_t, CacheKeyHash> awaited_;  // how many hang below
  std::unordered_map<CacheKey, int64_t, CacheKeyHash> touches_;
  HourlyCap cap_;
  int64_t bytes_ = 0;
  uint64_t added_ = 0;
  uint64_t done_ = 0;
  bool off_ = false;
  bool stopping_ = false;
  bool rested_ = false;  // since the last work
};

}  // namespace minke
