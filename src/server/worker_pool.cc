#include "server/worker_pool.h"

#include <exception>
#include <utility>

#include "core/thread_start.h"

namespace minke {

WorkerPool::WorkerPool(size_t queued_max, size_t queued_bytes_max)
    : queued_max_(queued_max), queued_bytes_max_(queued_bytes_max) {}

Result<std::unique_ptr<WorkerPool>> WorkerPool::Create(int threads, size_t queued_max,
                                                       size_t queued_bytes_max) {
  auto pool = std::unique_ptr<WorkerPool>(new WorkerPool(queued_max, queued_bytes_max));
  for (int i = 0; i < threads; ++i) {
    pool->threads_.push_back(TRY(StartThread(
        "reading requests", [own = pool.get()](const std::stop_token&) { own->Run(); })));
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  threads_.clear();
}

bool WorkerPool::Post(size_t bytes, std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    if (ending_ || jobs_.size() >= queued_max_) return false;
    if (!jobs_.empty() && queued_bytes_ + bytes > queued_bytes_max_) return false;
    queued_bytes_ += bytes;
    jobs_.push_back({bytes, std::move(job)});
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
      job = std::move(jobs_.front().run);
      queued_bytes_ -= jobs_.front().bytes;
      jobs_.pop_front();
    }
    try {
      job();
    } catch (const std::exception&) {
      // Memory for it did not suffice. What it holds goes with it, and so its client gets a 500.
    }
  }
}

}  // namespace minke
