#include "core/thread_pool.h"

#include <sched.h>

#include <algorithm>

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

int AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
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

ThreadPool::ThreadPool(int threads, int64_t share_cost_min)
    : threads_(threads),
      share_cost_min_(share_cost_min),
      // Who spins without a processor of its own takes it from who works.
      spin_count_(threads <= AllowedProcessors() ? kSpinCount : 0),
      shares_(std::make_unique<Share[]>(static_cast<size_t>(threads))),
      gate_(kClosed) {
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
  gate_.fetch_and(~kClosed, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  TakePieces(0);
  // All pieces are taken. Those inside finish theirs; nobody waits for a worker that sleeps.
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

void ThreadPool::Join(int worker) {
  const bool open = (gate_.fetch_add(1, std::memory_order_acq_rel) & kClosed) == 0;
  if (open) TakePieces(worker);
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
