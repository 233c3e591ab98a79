// Fixed worker threads with a static partition. Work is always split over outputs, so a result
// never depends on the number of threads (CONVENTIONS.md 20).
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace minke {

inline constexpr int kMaxThreads = 1024;

class ThreadPool {
 public:
  // `threads` counts the calling thread; 1 starts no worker. REQUIRES: 1 <= threads <= kMaxThreads.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(begin, end, worker) once per worker with a non-empty contiguous share of
  // [0, count); returns when all are done. Shares are multiples of `grain` but for the last, and
  // fewer workers take part where count is small. 0 <= worker < threads(). Not reentrant: one
  // caller at a time, and no body may call ParallelFor.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, const Body& body) {
    Run(
        count, grain,
        [](const void* context, int64_t begin, int64_t end, int worker) {
          (*static_cast<const Body*>(context))(begin, end, worker);
        },
        &body);
  }

 private:
  using Invoke = void (*)(const void* context, int64_t begin, int64_t end, int worker);
  void Run(int64_t count, int64_t grain, Invoke invoke, const void* context);
  void RunShare(int worker) const;
  void WorkerLoop(int worker);

  int threads_;
  // The job of the current generation; written by the caller before generation_ is raised and
  // read by workers after they see it.
  int64_t count_ = 0;
  int64_t share_ = 0;
  Invoke invoke_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<uint32_t> generation_{0};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> workers_;
};

}  // namespace minke
