#include "core/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/resident_memory.h"

namespace minke {
namespace {

TEST(BlockPool, ABudgetHoldsSoManyBlocksAndNoMore) {
  for (const int64_t budget : {0, 99, 100, 101, 299, 300}) {
    BlockPool pool(100, budget);
    std::vector<BlockRef> blocks;
    for (int64_t i = 0; i < budget / 100; ++i) {
      blocks.push_back(pool.Allocate());
      EXPECT_TRUE(blocks.back());
    }
    EXPECT_FALSE(pool.Allocate());
    EXPECT_EQ(pool.usage().used_bytes, budget / 100 * 100);
    EXPECT_EQ(pool.usage().live_blocks, budget / 100);
    EXPECT_EQ(pool.usage().budget_bytes, budget);
  }
}

TEST(BlockPool, MemoryIsAlignedAndApart) {
  BlockPool pool(65, 1 << 20);
  std::vector<BlockRef> blocks;
  for (int value = 1; value <= 50; ++value) {
    blocks.push_back(pool.Allocate());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().bytes()) % kAlignmentBytes, 0u);
    std::memset(blocks.back().bytes(), value, 65);
  }
  for (int value = 1; value <= 50; ++value) {
    const std::byte* bytes = blocks[static_cast<size_t>(value - 1)].bytes();
    EXPECT_EQ(std::count(bytes, bytes + 65, static_cast<std::byte>(value)), 65);
  }
}

TEST(BlockPool, ABlockLivesAsLongAsItsLastReference) {
  BlockPool pool(100, 100);
  BlockRef first = pool.Allocate();
  EXPECT_FALSE(first.shared());
  BlockRef second = first;
  EXPECT_TRUE(first.shared());
  EXPECT_TRUE(first.SameBlock(second));
  BlockRef third = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): a moved reference is empty.
  second.Reset();
  EXPECT_FALSE(third.shared());
  EXPECT_EQ(pool.usage().live_blocks, 1);
  third = BlockRef();
  EXPECT_EQ(pool.usage().live_blocks, 0);
  third.Reset();  // of nothing
  EXPECT_EQ(pool.usage().live_blocks, 0);
  EXPECT_TRUE(pool.Allocate());
}

TEST(BlockPool, AssignmentToItselfKeepsTheBlock) {
  BlockPool pool(100, 100);
  BlockRef block = pool.Allocate();
  BlockRef& same = block;
  block = same;
  EXPECT_TRUE(block);
  block = std::move(same);
  EXPECT_TRUE(block);
  EXPECT_EQ(pool.usage().live_blocks, 1);
}

TEST(BlockPool, AReservationIsThereWhenItIsNeeded) {
  BlockPool pool(100, 350);
  EXPECT_FALSE(pool.Reserve(4));
  EXPECT_TRUE(pool.Reserve(2));
  BlockRef other = pool.Allocate();
  EXPECT_TRUE(other);
  EXPECT_FALSE(pool.Allocate());  // 50 bytes are left beside what is set aside
  EXPECT_FALSE(pool.Reserve(1));
  EXPECT_FALSE(pool.Charge(51));
  EXPECT_EQ(pool.usage().reserved_bytes, 200);
  BlockRef reserved = pool.AllocateReserved();
  EXPECT_TRUE(reserved);
  EXPECT_EQ(pool.usage().reserved_bytes, 100);
  EXPECT_EQ(pool.usage().used_bytes, 200);
  pool.Unreserve(1);
  EXPECT_TRUE(pool.Allocate());
  EXPECT_TRUE(pool.Reserve(0));
}

TEST(BlockPool, ChargesCountLikeBlocks) {
  BlockPool pool(100, 350);
  EXPECT_TRUE(pool.Charge(0));
  EXPECT_FALSE(pool.Charge(351));
  EXPECT_TRUE(pool.Charge(251));
  EXPECT_FALSE(pool.Allocate());
  pool.Refund(1);
  BlockRef block = pool.Allocate();
  EXPECT_TRUE(block);
  EXPECT_FALSE(pool.Charge(1));
  EXPECT_EQ(pool.usage().charged_bytes, 250);
  EXPECT_EQ(pool.usage().used_bytes, 350);
  pool.Refund(250);
  EXPECT_EQ(pool.usage().used_bytes, 100);
}

TEST(BlockPool, FreedMemoryIsUsedAgain) {
  BlockPool pool(4096, 1 << 20);
  BlockRef block = pool.Allocate();
  const std::byte* bytes = block.bytes();
  block.Reset();
  block = pool.Allocate();
  EXPECT_EQ(block.bytes(), bytes);
}

TEST(BlockPool, FreedMemoryGivesWayToCharges) {
  constexpr int64_t kBlockBytes = int64_t{1} << 20;
  constexpr int64_t kBlocks = 64;
  BlockPool pool(kBlockBytes, kBlocks * kBlockBytes);
  std::vector<BlockRef> blocks;
  for (int64_t i = 0; i < kBlocks; ++i) {
    blocks.push_back(pool.Allocate());
    std::memset(blocks.back().bytes(), 1, kBlockBytes);
  }
  blocks.clear();
  const int64_t before = testing::MemoryBytes("VmRSS");
  ASSERT_TRUE(pool.Charge(kBlocks * kBlockBytes));
  malloc_trim(0);
  // Sanitizers keep freed memory for a while.
  const int64_t freed = before - testing::MemoryBytes("VmRSS");
  EXPECT_TRUE(testing::kSanitized || freed > kBlocks * kBlockBytes / 2) << freed;
  pool.Refund(kBlocks * kBlockBytes);
  EXPECT_TRUE(pool.Allocate());
}

#ifndef NDEBUG
TEST(BlockPool, FreedBlocksArePoisoned) {
  BlockPool pool(64, 64);
  BlockRef block = pool.Allocate();
  std::memset(block.bytes(), 1, 64);
  block.Reset();
  block = pool.Allocate();
  EXPECT_EQ(std::count(block.bytes(), block.bytes() + 64, std::byte{1}), 0);
}
#endif

TEST(BlockPool, RandomUseNeverExceedsTheBudget) {
  std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same run every time
  BlockPool pool(100, 2050);
  std::vector<BlockRef> blocks;
  int64_t reserved = 0;
  int64_t charged = 0;
  for (int step = 0; step < 100000; ++step) {
    const int64_t amount = static_cast<int64_t>(random() % 5);
    switch (random() % 7) {
      case 0:
        if (BlockRef block = pool.Allocate()) blocks.push_back(std::move(block));
        break;
      case 1:
        if (!blocks.empty()) {
          std::swap(blocks[random() % blocks.size()], blocks.back());
          blocks.pop_back();
        }
        break;
      case 2:
        if (pool.Reserve(amount)) reserved += amount;
        break;
      case 3:
        if (reserved > 0) {
          blocks.push_back(pool.AllocateReserved());
          --reserved;
        }
        break;
      case 4:
        pool.Unreserve(std::min(amount, reserved));
        reserved -= std::min(amount, reserved);
        break;
      case 5:
        if (pool.Charge(amount * 30)) charged += amount * 30;
        break;
      default:
        pool.Refund(std::min(amount * 30, charged));
        charged -= std::min(amount * 30, charged);
    }
    const BlockPoolUsage usage = pool.usage();
    ASSERT_EQ(usage.live_blocks, static_cast<int64_t>(blocks.size()));
    ASSERT_EQ(usage.charged_bytes, charged);
    ASSERT_EQ(usage.reserved_bytes, reserved * 100);
    ASSERT_EQ(usage.used_bytes, usage.live_blocks * 100 + charged);
    ASSERT_LE(usage.used_bytes + usage.reserved_bytes, usage.budget_bytes);
  }
  pool.Unreserve(reserved);
  pool.Refund(charged);
}

// Several threads take, copy and drop references as the engine and the storage thread do.
TEST(BlockPool, ReferencesMayBeDroppedOnAnyThread) {
  constexpr int kThreads = 4;
  constexpr int kSteps = testing::kSanitized ? 2000 : 20000;
  BlockPool pool(64, 1024);
  std::atomic<int64_t> allocated = 0;
  std::atomic<bool> torn = false;
  {
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int step = 0; step < kSteps; ++step) {
          BlockRef block = pool.Allocate();
          if (!block) continue;
          ++allocated;
          std::memset(block.bytes(), thread + 1, 64);
          std::jthread reader;
          const auto read = [&torn, thread, copy = block] {
            const std::byte* bytes = copy.bytes();
            const auto value = static_cast<std::byte>(thread + 1);
            if (std::count(bytes, bytes + 64, value) != 64) torn = true;
          };
          if (step % 100 == 0) reader = std::jthread(read);
          read();
          block.Reset();
        }
      });
    }
  }
  EXPECT_FALSE(torn);
  EXPECT_GT(allocated, kSteps);
  EXPECT_EQ(pool.usage().live_blocks, 0);
}

TEST(BlockPoolDeathTest, MisuseStops) {
  BlockPool pool(100, 300);
  EXPECT_DEATH(BlockPool(0, 100), "block_bytes > 0");
  EXPECT_DEATH((void)pool.AllocateReserved(), "reserved_blocks_ > 0");
  EXPECT_DEATH(pool.Unreserve(1), "reserved_blocks_");
  EXPECT_DEATH(pool.Refund(1), "charged_bytes_");
}

}  // namespace
}  // namespace minke
