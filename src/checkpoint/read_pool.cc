#include "checkpoint/read_pool.h"

#include <algorithm>
#include <utility>

#include "core/thread_start.h"

namespace minke {

Result<std::unique_ptr<ReadPool>> ReadPool::Create(int readers) {
  CHECK(readers >= 1 && readers <= kReadersMax);
  auto pool = std::unique_ptr<ReadPool>(new ReadPool());
  pool->readers_.reserve(static_cast<size_t>(readers));
  for (int i = 0; i < readers; ++i) {
    pool->readers_.push_back(TRY(StartThread(
        "reading the weights", [own = pool.get()](const std::stop_token&) { own->ReadLoop(); })));
  }
  return pool;
}

ReadPool::~ReadPool() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    urgent_.clear();
    ahead_.clear();
  }
  work_.notify_all();
}

void ReadPool::Start(ReadBatch& batch, std::span<const ReadRequest> requests, ReadUrgency urgency) {
  {
    const std::scoped_lock lock(mutex_);
    CHECK(batch.pending_ == 0, "a batch is started again before it is done");
    batch.status_ = {};
    std::deque<Job>& queue = urgency == ReadUrgency::kNow ? urgent_ : ahead_;
    for (const ReadRequest& request : requests) {
      for (size_t at = 0; at < request.target.size(); at += kReadBytesMax) {
        const size_t bytes = std::min(kReadBytesMax, request.target.size() - at);
        queue.push_back(
            {&batch, {request.source, request.begin + at, request.target.subspan(at, bytes)}});
        ++batch.pending_;
      }
    }
  }
  work_.notify_all();
}

void ReadPool::Hurry(ReadBatch& batch) {
  const std::scoped_lock lock(mutex_);
  const auto mine = [&](const Job& job) { return job.batch == &batch; };
  std::copy_if(ahead_.begin(), ahead_.end(), std::back_inserter(urgent_), mine);
  std::erase_if(ahead_, mine);
}

void ReadPool::Cancel(ReadBatch& batch) {
  const std::scoped_lock lock(mutex_);
  const auto mine = [&](const Job& job) { return job.batch == &batch; };
  batch.pending_ -= static_cast<int64_t>(std::erase_if(urgent_, mine));
  batch.pending_ -= static_cast<int64_t>(std::erase_if(ahead_, mine));
}

bool ReadPool::Done(const ReadBatch& batch) const {
  const std::scoped_lock lock(mutex_);
  return batch.pending_ == 0;
}

Status ReadPool::Outcome(const ReadBatch& batch) const {
  const std::scoped_lock lock(mutex_);
  CHECK(batch.pending_ == 0);
  return batch.status_;
}

size_t ReadPool::Wait(std::span<const ReadBatch* const> batches) {
  CHECK(!batches.empty());
  std::unique_lock lock(mutex_);
  const auto first_done = [&] {
    const auto found = std::find_if(batches.begin(), batches.end(),
                                    [](const ReadBatch* batch) { return batch->pending_ == 0; });
    return static_cast<size_t>(found - batches.begin());
  };
  size_t found = first_done();
  if (found < batches.size()) return found;
  wait_start_ = Clock::now();
  while (found == batches.size()) {
    done_.wait(lock);
    found = first_done();
  }
  totals_.wait_seconds = WaitedSeconds(Clock::now());
  wait_start_.reset();
  return found;
}

ReadTotals ReadPool::totals() const {
  const std::scoped_lock lock(mutex_);
  return totals_;
}

double ReadPool::WaitedSeconds(Clock::time_point now) const {
  if (!wait_start_.has_value()) return totals_.wait_seconds;
  return totals_.wait_seconds + std::chrono::duration<double>(now - *wait_start_).count();
}

void ReadPool::ReadLoop() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !urgent_.empty() || !ahead_.empty(); });
    if (stop_) return;
    std::deque<Job>& queue = urgent_.empty() ? ahead_ : urgent_;
    const Job job = queue.front();
    queue.pop_front();
    const Clock::time_point begin = Clock::now();
    const double waited_before = WaitedSeconds(begin);
    lock.unlock();
    Status status = job.request.source->Read(job.request.begin, job.request.target);
    lock.lock();
    const Clock::time_point end = Clock::now();
    const double seconds = std::chrono::duration<double>(end - begin).count();
    const auto bytes = static_cast<int64_t>(job.request.target.size());
    if (status) totals_.bytes += bytes;
    if (status && seconds > 0) {
      const double share = std::min(1.0, (WaitedSeconds(end) - waited_before) / seconds);
      totals_.waited_bytes += share * static_cast<double>(bytes);
    }
    if (!status && job.batch->status_) job.batch->status_ = std::move(status);
    if (--job.batch->pending_ == 0) done_.notify_all();
  }
}

}  // namespace minke
