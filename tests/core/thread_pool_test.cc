#include "core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace minke {
namespace {

struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int worker = 0;
};

std::vector<Share> SharesOf(ThreadPool& pool, int64_t count, int64_t grain) {
  std::mutex mutex;
  std::vector<Share> shares;
  pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end, int worker) {
    const std::lock_guard lock(mutex);
    shares.push_back({begin, end, worker});
  });
  return shares;
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const int64_t grain : {1, 3, 32, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end, int worker) {
          EXPECT_GE(worker, 0);
          EXPECT_LT(worker, threads);
          for (int64_t i = begin; i < end; ++i) seen[static_cast<size_t>(i)].fetch_add(1);
        });
        for (const auto& times : seen) EXPECT_EQ(times.load(), 1);
      }
    }
  }
}

TEST(ThreadPool, PiecesAreMultiplesOfTheGrain) {
  ThreadPool pool(3);
  for (const Share& share : SharesOf(pool, 100, 8)) {
    EXPECT_EQ(share.begin % 8, 0);
    EXPECT_TRUE(share.end == 100 || share.end % 8 == 0);
    EXPECT_LT(share.begin, share.end);
  }
}

TEST(ThreadPool, SmallWorkStaysWithTheCaller) {
  ThreadPool pool(4);
  const auto shares = SharesOf(pool, 10, 16);
  ASSERT_EQ(shares.size(), 1u);
  EXPECT_EQ(shares[0].worker, 0);
  EXPECT_EQ(shares[0].end, 10);
}

// A worker that does not come on holds up one piece of its share, not all of it.
TEST(ThreadPool, OthersTakeWhatASlowWorkerLeaves) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int64_t> done{0};
    std::atomic<bool> helped{false};
    // The shares are [0, 80) and [80, 160), in pieces of 10.
    pool.ParallelFor(160, 1, [&](int64_t begin, int64_t end, int worker) {
      while (begin == 80 && done.load() < 150) std::this_thread::yield();
      if ((worker == 0) != (begin < 80)) helped = true;
      done += end - begin;
    });
    EXPECT_EQ(done.load(), 160);
    EXPECT_TRUE(helped.load());
  }
}

TEST(ThreadPool, WritesAreVisibleAfterwards) {
  ThreadPool pool(4);
  std::vector<int64_t> values(4096);
  for (int64_t round = 0; round < 500; ++round) {
    pool.ParallelFor(4096, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) values[static_cast<size_t>(i)] += i + round;
    });
  }
  for (int64_t i = 0; i < 4096; ++i) {
    EXPECT_EQ(values[static_cast<size_t>(i)], 500 * i + 499 * 500 / 2);
  }
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  for (int i = 0; i < 3; ++i) {
    // Longer than workers spin, so that they wait in the kernel.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
  }
  EXPECT_EQ(sum.load(), 300);
}

TEST(ThreadPool, IdlePoolsEnd) {
  for (int i = 0; i < 50; ++i) const ThreadPool pool(4);
}

}  // namespace
}  // namespace minke
