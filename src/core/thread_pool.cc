#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include <fmt/format.h>

#include "core/processors.h"
#include "core/result.h"

namespace minke {

namespace {

// How a thread waits: it spins for about 20 microseconds, which is longer than the gap between two
// kernels of one step and shorter than anything a person would notice as load; then it lets others
// have the processor for a while; then it sleeps.
constexpr int kSpinCount = 2000;
constexpr int kYieldCount = 50;
constexpr uint32_t kClosed = uint32_t{1} << 31;
// Pieces of a share: what a slow worker can hold up is one of them.
constexpr int64_t kPieces = 8;

void Pause() {
  __builtin_ia32_pause();
}

// Returns whether done() became true by spinning and yielding.
template <typename Done>
bool SpinUntil(int spin_count, const Done& done) {
  for (int i = 0; i < spin_count; ++i) {
    if (done()) return true;
    Pause();
  }
  for (int i = 0; i < kYieldCount; ++i) {
    if (done()) return true;
    ::sched_yield();
  }
  return done();
}

}  // namespace

ThreadPool::ThreadPool(int threads, int64_t share_cost_min, Pinning pinning)
    : threads_(threads),
      share_cost_min_(share_cost_min),
      allowed_(AllowedProcessors()),
      // Who spins without a processor of its own takes it from who works.
      spin_count_(threads <= std::max(1, static_cast<int>(allowed_.size())) ? kSpinCount : 0),
      shares_(std::make_unique<Share[]>(static_cast<size_t>(threads))),
      gate_(kClosed) {
  CHECK(threads >= 1 && threads <= kMaxThreads);
  workers_.reserve(static_cast<size_t>(threads - 1));
  try {
    for (int worker = 1; worker < threads; ++worker) {
      workers_.emplace_back([this, worker] { WorkerLoop(worker); });
    }
  } catch (const std::system_error&) {
    threads_ = static_cast<int>(workers_.size()) + 1;  // the system starts no more of them
  }
  if (pinning == Pinning::kProcessorEach) PinWorkers();
}

ThreadPool::~ThreadPool() {
  ReleaseCaller();
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

void ThreadPool::PinWorkers() {
  const std::vector<int> placement = PlaceThreads(LocateProcessors(allowed_), threads_);
  if (placement.empty()) {
    pinning_problem_ = fmt::format("there are {} threads, but this process may use {} processor{}",
                                   threads_, allowed_.size(), allowed_.size() == 1 ? "" : "s");
    return;
  }
  for (size_t worker = 1; worker < placement.size(); ++worker) {
    const Status bound = BindThread(workers_[worker - 1].native_handle(), {&placement[worker], 1});
    if (bound) continue;
    pinning_problem_ = bound.error().message;
    for (std::jthread& thread : workers_) {
      static_cast<void>(BindThread(thread.native_handle(), allowed_));  // it ran there before
    }
    return;
  }
  processors_ = placement;
}

void ThreadPool::BindCaller() {
  if (processors_.empty() || caller_ == ::gettid()) return;
  caller_ = ::gettid();
  // Where the system changed its mind since the workers were bound, the caller runs anywhere.
  static_cast<void>(BindThread(::pthread_self(), {&processors_[0], 1}));
}

void ThreadPool::ReleaseCaller() {
  if (caller_ == 0 || caller_ != ::gettid()) return;
  caller_ = 0;
  static_cast<void>(BindThread(::pthread_self(), allowed_));  // it ran there before
}

int64_t ThreadPool::GrainFor(int64_t item_cost) const {
  return std::max<int64_t>(1, share_cost_min_ / std::max<int64_t>(1, item_cost));
}

void ThreadPool::Run(int64_t count, int64_t grain, Invoke invoke, const void* context) {
  if (count <= 0) return;
  BindCaller();
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t share_grains = (grains + threads_ - 1) / threads_;
  const int64_t share = share_grains * grain;
  if (threads_ == 1 || share >= count) {
    invoke(context, 0, count, 0);
    return;
  }
  piece_ = (share_grains + kPieces - 1) / kPieces * grain;
  invoke_ = invoke;
  context_ = context;
  for (int64_t worker = 0; worker < threads_; ++worker) {
    Share& own = shares_[static_cast<size_t>(worker)];
    own.next.store(std::min(share * worker, count), std::memory_order_relaxed);
    own.end = std::min(share * (worker + 1), count);
  }
  OpenGate();
  TakePieces(0);
  // All pieces are taken. Those inside finish theirs; nobody waits for a worker that sleeps.
  CloseGate();
}

void ThreadPool::RunInAll(Invoke invoke, const void* context) {
  BindCaller();
  if (threads_ == 1) {
    invoke(context, 0, 1, 0);
    return;
  }
  invoke_ = invoke;
  context_ = context;
  own_shares_ = true;
  for (int worker = 0; worker < threads_; ++worker) {
    Share& own = shares_[static_cast<size_t>(worker)];
    own.next.store(worker, std::memory_order_relaxed);
    own.end = worker + 1;
  }
  missing_.store(threads_, std::memory_order_relaxed);
  OpenGate();
  TakeOwnShare(0);
  for (int missing = missing_.load(std::memory_order_acquire); missing != 0;
       missing = missing_.load(std::memory_order_acquire)) {
    missing_.wait(missing, std::memory_order_acquire);
  }
  CloseGate();
  own_shares_ = false;
}

void ThreadPool::OpenGate() {
  gate_.fetch_and(~kClosed, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
}

// Returns when nobody is inside.
void ThreadPool::CloseGate() {
  uint32_t inside = gate_.fetch_or(kClosed, std::memory_order_acq_rel) | kClosed;
  if (SpinUntil(spin_count_, [&] {
        inside = gate_.load(std::memory_order_acquire);
        return inside == kClosed;
      })) {
    return;
  }
  for (; inside != kClosed; inside = gate_.load(std::memory_order_acquire)) {
    gate_.wait(inside, std::memory_order_acquire);
  }
}

void ThreadPool::TakePieces(int worker) {
  for (int i = 0; i < threads_; ++i) {
    Share& share = shares_[static_cast<size_t>((worker + i) % threads_)];
    while (true) {
      // A look before the addition keeps finished shares unwritten.
      if (share.next.load(std::memory_order_relaxed) >= share.end) break;
      const int64_t begin = share.next.fetch_add(piece_, std::memory_order_relaxed);
      if (begin >= share.end) break;
      invoke_(context_, begin, std::min(begin + piece_, share.end), worker);
    }
  }
}

// A worker may come twice, once late for a job that is over.
void ThreadPool::TakeOwnShare(int worker) {
  Share& own = shares_[static_cast<size_t>(worker)];
  if (own.next.exchange(own.end, std::memory_order_relaxed) >= own.end) return;
  invoke_(context_, worker, worker + 1, worker);
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) missing_.notify_one();
}

void ThreadPool::Join(int worker) {
  const bool open = (gate_.fetch_add(1, std::memory_order_acq_rel) & kClosed) == 0;
  if (open && own_shares_) TakeOwnShare(worker);
  if (open && !own_shares_) TakePieces(worker);
  const uint32_t left = gate_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  if (left == kClosed) gate_.notify_one();
}

uint32_t ThreadPool::AwaitGeneration(uint32_t seen) const {
  uint32_t now = seen;
  const bool came = SpinUntil(spin_count_, [&] {
    now = generation_.load(std::memory_order_acquire);
    return now != seen;
  });
  if (came) return now;
  generation_.wait(seen, std::memory_order_acquire);
  return generation_.load(std::memory_order_acquire);
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  while (true) {
    seen = AwaitGeneration(seen);
    if (stop_.load(std::memory_order_relaxed)) return;
    Join(worker);
  }
}

}  // namespace minke
