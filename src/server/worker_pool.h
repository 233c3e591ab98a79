// Threads that read and encode requests, so that neither a socket nor the engine waits for 48 MiB
// of JSON.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace minke {

class WorkerPool {
 public:
  WorkerPool(int threads, size_t queued_max);
  // Runs what is queued, then ends the threads.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False if the queue is full; the job is then not taken.
  [[nodiscard]] bool Post(std::function<void()> job);

 private:
  void Run();

  const size_t queued_max_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::jthread> threads_;  // last: they end before the queue goes
};

}  // namespace minke
