#include "server/worker_pool.h"

#include <atomic>
#include <new>

#include <gtest/gtest.h>

#include "tests/server/test_handler.h"

namespace minke::test {
namespace {

// Holds the only thread of a pool until it is let go.
class HeldPool {
 public:
  HeldPool(size_t queued_max, size_t bytes_max)
      : pool_(WorkerPool::Create(1, queued_max, bytes_max).value()) {
    EXPECT_TRUE(pool_->Post(0, [this] {
      began_.Set();
      go_on_.Wait();
    }));
    EXPECT_TRUE(began_.Wait());
  }
  bool Post(size_t bytes) {
    return pool_->Post(bytes, [this] { ++ran_; });
  }
  void GoOn() { go_on_.Set(); }
  int ran() const { return ran_; }

 private:
  Signal began_;
  Signal go_on_;
  std::atomic<int> ran_ = 0;
  std::unique_ptr<WorkerPool> pool_;  // last: it ends first
};

TEST(WorkerPool, TakesAsManyJobsAsMayWait) {
  HeldPool pool(2, 100);
  EXPECT_TRUE(pool.Post(0));
  EXPECT_TRUE(pool.Post(0));
  EXPECT_FALSE(pool.Post(0));
  pool.GoOn();
  EXPECT_TRUE(WaitUntil([&] { return pool.ran() == 2; }));
  EXPECT_TRUE(pool.Post(0));
}

TEST(WorkerPool, TakesAsManyBytesAsMayWait) {
  HeldPool pool(9, 100);
  EXPECT_TRUE(pool.Post(101)) << "a single one may be larger, or it could never run";
  EXPECT_FALSE(pool.Post(1));
  pool.GoOn();
  EXPECT_TRUE(WaitUntil([&] { return pool.ran() == 1; }));
  HeldPool other(9, 100);
  EXPECT_TRUE(other.Post(60));
  EXPECT_TRUE(other.Post(40));
  EXPECT_FALSE(other.Post(1));
  other.GoOn();
}

TEST(WorkerPool, AJobThatGetsNoMemoryEndsAloneAndLetsGoOfWhatItHolds) {
  const std::unique_ptr<WorkerPool> pool = WorkerPool::Create(1, 9, 100).value();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  EXPECT_TRUE(pool->Post(0, [held = std::move(held)] { throw std::bad_alloc(); }));
  EXPECT_TRUE(WaitUntil([&] { return watched.expired(); }));
  Signal next;
  EXPECT_TRUE(pool->Post(0, [&next] { next.Set(); }));
  EXPECT_TRUE(next.Wait());
}

}  // namespace
}  // namespace minke::test
