#include "core/thread_pool.h"

#include <algorithm>

#include "core/result.h"

namespace minke {

namespace {

// Spins this many times before sleeping: about 20 microseconds, longer than the gap between two
// kernels of one step and shorter than anything a person would notice as load.
constexpr int kSpinCount = 2000;

void Pause() {
  __builtin_ia32_pause();
}

}  // namespace

ThreadPool::ThreadPool(int threads, int64_t share_cost_min)
    : threads_(threads), share_cost_min_(share_cost_min) {
  CHECK(threads >= 1 && threads <= kMaxThreads);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

int64_t ThreadPool::GrainFor(int64_t item_cost) const {
  return std::max<int64_t>(1, share_cost_min_ / std::max<int64_t>(1, item_cost));
}

void ThreadPool::Run(int64_t count, int64_t grain, Invoke invoke, const void* context) {
  if (count <= 0) return;
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t per_worker = (grains + threads_ - 1) / threads_;
  count_ = count;
  share_ = per_worker * grain;
  invoke_ = invoke;
  context_ = context;
  if (threads_ == 1 || share_ >= count) {
    invoke(context, 0, count, 0);
    return;
  }
  pending_.store(threads_ - 1, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  RunShare(0);
  for (int spin = 0; spin < kSpinCount; ++spin) {
    if (pending_.load(std::memory_order_acquire) == 0) return;
    Pause();
  }
  for (int left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire)) {
    pending_.wait(left, std::memory_order_acquire);
  }
}

void ThreadPool::RunShare(int worker) const {
  const int64_t begin = share_ * worker;
  const int64_t end = std::min(begin + share_, count_);
  if (begin < end) invoke_(context_, begin, end, worker);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  while (true) {
    int spin = 0;
    while (generation_.load(std::memory_order_acquire) == seen) {
      if (++spin < kSpinCount) {
        Pause();
      } else {
        generation_.wait(seen, std::memory_order_acquire);
      }
    }
    // One job at a time: the caller waits for every worker before it raises the generation again.
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    RunShare(worker);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace minke
