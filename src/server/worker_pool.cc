#include "server/worker_pool.h"

#include <utility>

namespace minke {

WorkerPool::WorkerPool(int threads, size_t queued_max) : queued_max_(queued_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  threads_.clear();
}

bool WorkerPool::Post(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    if (ending_ || jobs_.size() >= queued_max_) return false;
    jobs_.push_back(std::move(job));
  }
  work_.notify_one();
  return true;
}

void WorkerPool::Run() {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace minke
