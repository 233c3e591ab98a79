// Threads that read and encode requests, so that neither a socket nor the engine waits for 48 MiB
// of JSON.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/result.h"

namespace minke {

class WorkerPool {
 public:
  // queued_bytes_max: of what the waiting jobs hold; a single one may hold more. Fails where the
  // system starts fewer threads.
  static Result<std::unique_ptr<WorkerPool>> Create(int threads, size_t queued_max,
                                                    size_t queued_bytes_max);
  // Runs what is queued, then ends the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // bytes: that the job holds until it runs. False if the queue is full; the job is then not taken.
  // One that throws ends alone.
  [[nodiscard]] bool Post(size_t bytes, std::function<void()> job);

 private:
  WorkerPool(size_t queued_max, size_t queued_bytes_max);
  void Run();

  struct Job {
    size_t bytes = 0;
    std::function<void()> run;
  };

  const size_t queued_max_;
  const size_t queued_bytes_max_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Job> jobs_;
  size_t queued_bytes_ = 0;
  bool ending_ = false;
  std::vector<std::jthread> threads_;  // last: they end before the queue goes
};

}  // namespace minke
