// Threads that read from the disk while others compute: several reads in flight, urgent ones first,
// and a clock of the time that somebody waits for them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "checkpoint/direct_file.h"
#include "core/result.h"

namespace minke {

// Of one request to the system: large enough for the disk, and small enough that all readers are
// busy until the last piece of an expert is there.
inline constexpr size_t kReadBytesMax = size_t{256} << 10;
inline constexpr int kReadersMax = 64;

struct ReadRequest {
  const ByteSource* source = nullptr;
  uint64_t begin = 0;
  std::span<std::byte> target;  // see ByteSource::Read()
};

enum class ReadUrgency {
  kNow,    // somebody waits, or will as soon as what is there is used up
  kAhead,  // when nothing is urgent
};

// Reads that belong together. Lives at one address until its reads are done; the pool's alone.
class ReadBatch {
 public:
  ReadBatch() = default;

 private:
  friend class ReadPool;
  int64_t pending_ = 0;  // queued or running
  Status status_;        // the first error
};

// Totals since the pool was made.
struct ReadTotals {
  int64_t bytes = 0;
  double wait_seconds = 0;  // in Wait()
  // Of `bytes`, what arrived while somebody waited: a read counts by the share of its time that
  // was waited for. waited_bytes / wait_seconds is the rate of the disk when it counts.
  double waited_bytes = 0;
};

// Thread safety: Start() to Wait() are for one thread; totals() for any.
class ReadPool {
 public:
  // Fails where the system starts fewer threads. REQUIRES 1 <= readers <= kReadersMax.
  static Result<std::unique_ptr<ReadPool>> Create(int readers);
  // Forgets queued reads and waits for running ones.
  ~ReadPool();
  ReadPool(const ReadPool&) = delete;
  ReadPool& operator=(const ReadPool&) = delete;

  // Begins reads in pieces of at most kReadBytesMax. The batch must be done; its old error goes.
  void Start(ReadBatch& batch, std::span<const ReadRequest> requests, ReadUrgency urgency);
  // Makes what is queued of the batch urgent.
  void Hurry(ReadBatch& batch);
  // Forgets what is queued of the batch; running reads end by themselves.
  void Cancel(ReadBatch& batch);
  bool Done(const ReadBatch& batch) const;
  // The first error of a batch that is done.
  Status Outcome(const ReadBatch& batch) const;
  // Waits until one of them is done, and says which. REQUIRES: not empty.
  size_t Wait(std::span<const ReadBatch* const> batches);

  ReadTotals totals() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    ReadBatch* batch = nullptr;
    ReadRequest request;
  };
  ReadPool() = default;
  void ReadLoop();
  double WaitedSeconds(Clock::time_point now) const;  // REQUIRES the mutex

  mutable std::mutex mutex_;  // of everything below
  std::condition_variable work_;
  std::condition_variable done_;
  std::deque<Job> urgent_;
  std::deque<Job> ahead_;
  bool stop_ = false;
  ReadTotals totals_;
  std::optional<Clock::time_point> wait_start_;
  std::vector<std::jthread> readers_;
};

}  // namespace minke
