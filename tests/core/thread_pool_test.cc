#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/processors.h"
#include "tests/support/resident_memory.h"

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

TEST(ThreadPool, EveryWorkerHasItsTurnInItsOwnThread) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<std::thread::id> ids(static_cast<size_t>(threads));
      std::atomic<int> turns{0};
      pool.ForEachWorker([&](int worker) {
        ids[static_cast<size_t>(worker)] = std::this_thread::get_id();
        turns.fetch_add(1);
      });
      EXPECT_EQ(turns.load(), threads);
      EXPECT_EQ(ids[0], std::this_thread::get_id());
      EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
      std::atomic<int64_t> sum{0};  // and shares are shared again afterwards
      pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
      EXPECT_EQ(sum.load(), 100);
    }
  }
}

// The processors on which each worker may run.
std::vector<std::vector<int>> MasksOf(ThreadPool& pool) {
  std::vector<std::vector<int>> masks(static_cast<size_t>(pool.threads()));
  pool.ForEachWorker([&](int worker) { masks[static_cast<size_t>(worker)] = AllowedProcessors(); });
  return masks;
}

TEST(ThreadPool, PinnedWorkersHaveAProcessorEach) {
  const std::vector<int> allowed = AllowedProcessors();
  ASSERT_FALSE(allowed.empty());
  for (int threads = 1; threads <= std::min(4, static_cast<int>(allowed.size())); ++threads) {
    ThreadPool pool(threads, /*share_cost_min=*/0, Pinning::kProcessorEach);
    EXPECT_EQ(pool.pinning_problem(), "");
    EXPECT_EQ(AllowedProcessors(), allowed) << "nobody has called yet";
    const std::vector<std::vector<int>> masks = MasksOf(pool);
    std::set<int> used;
    for (size_t worker = 0; worker < masks.size(); ++worker) {
      EXPECT_EQ(masks[worker], std::vector<int>{pool.processors()[worker]});
      used.insert(pool.processors()[worker]);
    }
    EXPECT_EQ(used.size(), masks.size());
    EXPECT_TRUE(std::includes(allowed.begin(), allowed.end(), used.begin(), used.end()));
    // Pieces run there, too, whoever takes them.
    pool.ParallelFor(64, 1, [&](int64_t, int64_t, int worker) {
      EXPECT_EQ(AllowedProcessors(),
                std::vector<int>{pool.processors()[static_cast<size_t>(worker)]});
    });
    pool.ReleaseCaller();
    EXPECT_EQ(AllowedProcessors(), allowed);
    EXPECT_EQ(MasksOf(pool)[0], std::vector<int>{pool.processors()[0]}) << "a call binds again";
  }
  EXPECT_EQ(AllowedProcessors(), allowed) << "the pool is gone";
}

TEST(ThreadPool, EveryThreadThatCallsAPinnedPoolIsBound) {
  ThreadPool pool(1, kShareCostMin, Pinning::kProcessorEach);
  const std::vector<int> allowed = AllowedProcessors();
  for (int i = 0; i < 2; ++i) {
    std::jthread([&] {
      EXPECT_EQ(AllowedProcessors(), allowed);
      EXPECT_EQ(MasksOf(pool)[0], std::vector<int>{pool.processors()[0]});
    });
  }
}

TEST(ThreadPool, WithMoreThreadsThanProcessorsNobodyIsPinned) {
  const std::vector<int> allowed = AllowedProcessors();
  const int threads = static_cast<int>(allowed.size()) + 1;
  if (threads > kMaxThreads) GTEST_SKIP() << "a machine with as many processors as threads go";
  ThreadPool pool(threads, /*share_cost_min=*/0, Pinning::kProcessorEach);
  EXPECT_TRUE(pool.processors().empty());
  EXPECT_NE(pool.pinning_problem().find(std::to_string(threads) + " threads"), std::string::npos)
      << pool.pinning_problem();
  for (const std::vector<int>& mask : MasksOf(pool)) EXPECT_EQ(mask, allowed);
  EXPECT_TRUE(ThreadPool(threads).pinning_problem().empty()) << "nobody asked for it";
}

// As under taskset: the mask of who makes the pool counts, not the machine.
TEST(ThreadPool, PinsWithinTheMaskOfItsMaker) {
  const int last = AllowedProcessors().back();
  std::jthread([last] {
    ASSERT_TRUE(BindThread(::pthread_self(), {&last, 1}));
    ThreadPool one(1, kShareCostMin, Pinning::kProcessorEach);
    EXPECT_EQ(one.processors(), std::vector<int>{last});
    ThreadPool two(2, kShareCostMin, Pinning::kProcessorEach);
    EXPECT_EQ(two.pinning_problem(), "there are 2 threads, but this process may use 1 processor");
    for (const std::vector<int>& mask : MasksOf(two)) EXPECT_EQ(mask, std::vector<int>{last});
  });
}

// In a process of its own, because the limit stays.
[[noreturn]] void AskForMoreThreadsThanFit() {
  const rlimit little = {size_t{512} << 20, size_t{512} << 20};
  if (::setrlimit(RLIMIT_AS, &little) != 0) _exit(2);
  ThreadPool pool(1000, 0);  // of 8 MiB stacks
  std::atomic<int64_t> sum{0};
  pool.ParallelFor(100, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
  _exit(pool.threads() < 1000 && sum == 100 ? 0 : 1);
}

TEST(ThreadPool, WorksWithThoseThatTheSystemStarts) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer does not live with little address space";
  EXPECT_EXIT(AskForMoreThreadsThanFit(), ::testing::ExitedWithCode(0), "");
}

TEST(ThreadPool, IdlePoolsEnd) {
  for (int i = 0; i < 50; ++i) const ThreadPool pool(4);
}

}  // namespace
}  // namespace minke
