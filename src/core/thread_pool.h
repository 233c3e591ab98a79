// Fixed worker threads. Work is always split over outputs, so a result never depends on the number
// of threads or on who did what (CONVENTIONS.md 20).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace minke {

inline constexpr int kMaxThreads = 1024;
// Multiply-adds (of SIMD code, about 10 microseconds) below which a share of work is not worth
// waking a worker for.
inline constexpr int64_t kShareCostMin = int64_t{1} << 17;

enum class Pinning {
  kNone,  // the system moves threads as it likes
  // Each worker stays on a processor of its own (core/processors.h), and so does who calls from its
  // first call on. With more threads than processors nobody does.
  kProcessorEach,
};

class ThreadPool {
 public:
  // `threads` counts the calling thread; 1 starts no worker. share_cost_min: see GrainFor; tests
  // say 0 to split however small the work. Where the system starts no more of them, they are fewer.
  // REQUIRES: 1 <= threads <= kMaxThreads.
  explicit ThreadPool(int threads, int64_t share_cost_min = kShareCostMin,
                      Pinning pinning = Pinning::kNone);
  // Also lets the calling thread run where it could before.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  // The processor of every worker; empty where none is bound to one.
  const std::vector<int>& processors() const { return processors_; }
  // Why nobody is bound to a processor although that was asked for; else empty.
  const std::string& pinning_problem() const { return pinning_problem_; }
  // Lets the calling thread, if it is who called last, run where it could before its first call;
  // the next call binds again. For a thread that is about to start others, which inherit where it
  // may run.
  void ReleaseCaller();
  // The grain that makes a share cost at least the minimum, where one item costs item_cost
  // multiply-adds.
  int64_t GrainFor(int64_t item_cost) const;

  // Calls body(begin, end, worker) for pieces that cover [0, count); returns when all are done.
  // Every worker has a contiguous share, the same in every call, and goes through it in ascending
  // pieces; who is done takes pieces of those who are not, so that one that does not get its
  // processor holds up nobody. Pieces are multiples of `grain` but for the last, and small work
  // stays with the caller. 0 <= worker < threads(). Not reentrant: one caller at a time, and no
  // body may call ParallelFor.
  template <typename Body>
  void ParallelFor(int64_t count, int64_t grain, const Body& body) {
    Run(
        count, grain,
        [](const void* context, int64_t begin, int64_t end, int worker) {
          (*static_cast<const Body*>(context))(begin, end, worker);
        },
        &body);
  }

  // Calls body(worker) once in the thread of every worker, however long one keeps the others
  // waiting; returns when all are done. For what depends on where a thread runs. As for
  // ParallelFor, one caller at a time.
  template <typename Body>
  void ForEachWorker(const Body& body) {
    RunInAll([](const void* context, int64_t /*begin*/, int64_t /*end*/,
                int worker) { (*static_cast<const Body*>(context))(worker); },
             &body);
  }

 private:
  using Invoke = void (*)(const void* context, int64_t begin, int64_t end, int worker);
  // On a cache line of its own, since all but one thread leave it alone most of the time.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  void Run(int64_t count, int64_t grain, Invoke invoke, const void* context);
  void RunInAll(Invoke invoke, const void* context);
  void PinWorkers();
  void BindCaller();
  void OpenGate();
  void CloseGate();
  void TakePieces(int worker);
  void TakeOwnShare(int worker);
  void Join(int worker);
  void WorkerLoop(int worker);
  uint32_t AwaitGeneration(uint32_t seen) const;

  int threads_;
  int64_t share_cost_min_;
  std::vector<int> allowed_;  // processors, when the pool was made
  int spin_count_;
  std::vector<int> processors_;
  std::string pinning_problem_;
  pid_t caller_ = 0;  // bound to a processor; std::thread::id soon returns in another thread
  // The job; written by the caller while the gate is closed and nobody is inside.
  int64_t piece_ = 0;
  Invoke invoke_ = nullptr;
  const void* context_ = nullptr;
  bool own_shares_ = false;          // nobody takes pieces of others
  std::atomic<int> missing_{0};      // of own_shares_, those that are not done
  std::unique_ptr<Share[]> shares_;  // [threads_]
  // kClosed, and how many workers are inside. A worker that comes too late finds it closed.
  std::atomic<uint32_t> gate_;
  std::atomic<uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::jthread> workers_;
};

}  // namespace minke
