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
// Multiply-adds (of SIMD code, about 10 microseconds) below which a share of work is not worth
// waking a worker for.
inline constexpr int64_t kShareCostMin = int64_t{1} << 17;

class ThreadPool {
 public:
  // `threads` counts the calling thread; 1 starts no worker. share_cost_min: see GrainFor; tests
  // say 0 to split however small the work. REQUIRES: 1 <= threads <= kMaxThreads.
  explicit ThreadPool(int threads, int64_t share_cost_min = kShareCostMin);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // The grain that makes a share cost at least the minimum, where one item costs item_cost
  // multiply-adds.
  int64_t GrainFor(int64_t item_cost) const;

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
  int64_t share_cost_min_;
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
