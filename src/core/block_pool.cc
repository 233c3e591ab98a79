#include "core/block_pool.h"

#include <cstring>
#include <utility>

#include "core/result.h"

namespace minke {

BlockRef::BlockRef(const BlockRef& other) : block_(other.block_) {
  if (block_ != nullptr) block_->references.fetch_add(1, std::memory_order_relaxed);
}

BlockRef::BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}

BlockRef& BlockRef::operator=(BlockRef other) noexcept {
  std::swap(block_, other.block_);
  return *this;
}

void BlockRef::Reset() {
  Block* block = std::exchange(block_, nullptr);
  if (block == nullptr) return;
  if (block->references.fetch_sub(1, std::memory_order_acq_rel) == 1) block->pool->Return(block);
}

BlockPool::BlockPool(int64_t block_bytes, int64_t budget_bytes)
    : block_bytes_(block_bytes), budget_bytes_(budget_bytes) {
  CHECK(block_bytes > 0 && budget_bytes >= 0);
}

BlockPool::~BlockPool() {
  CHECK(live_blocks_ == 0, "a block outlived its pool");
}

BlockPoolUsage BlockPool::usage() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {.budget_bytes = budget_bytes_,
          .used_bytes = live_blocks_ * block_bytes_ + charged_bytes_,
          .reserved_bytes = reserved_blocks_ * block_bytes_,
          .live_blocks = live_blocks_,
          .charged_bytes = charged_bytes_};
}

int64_t BlockPool::Room() const {
  return budget_bytes_ - charged_bytes_ - (live_blocks_ + reserved_blocks_) * block_bytes_;
}

BlockRef BlockPool::Take() {
  ++live_blocks_;
  if (free_.empty()) {
    if (empty_.empty()) {
      blocks_.push_back(std::make_unique<BlockRef::Block>());
      blocks_.back()->pool = this;
      empty_.push_back(blocks_.back().get());
    }
    empty_.back()->bytes = AllocateAligned(static_cast<size_t>(block_bytes_));
    free_.push_back(empty_.back());
    empty_.pop_back();
  }
  BlockRef::Block* block = free_.back();
  free_.pop_back();
  block->references.store(1, std::memory_order_relaxed);
  return BlockRef(block);
}

BlockRef BlockPool::Allocate() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (Room() < block_bytes_) return {};
  return Take();
}

bool BlockPool::Reserve(int64_t blocks) {
  CHECK(blocks >= 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (blocks > Room() / block_bytes_) return false;
  reserved_blocks_ += blocks;
  return true;
}

void BlockPool::Unreserve(int64_t blocks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CHECK(blocks >= 0 && blocks <= reserved_blocks_);
  reserved_blocks_ -= blocks;
}

BlockRef BlockPool::AllocateReserved() {
  const std::lock_guard<std::mutex> lock(mutex_);
  CHECK(reserved_blocks_ > 0);
  --reserved_blocks_;
  return Take();
}

bool BlockPool::Charge(int64_t bytes) {
  CHECK(bytes >= 0);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > Room()) return false;
  charged_bytes_ += bytes;
  // Free blocks keep their memory for the next taker, but never beyond the budget.
  while (static_cast<int64_t>(free_.size()) * block_bytes_ >
         Room() + reserved_blocks_ * block_bytes_) {
    free_.back()->bytes.reset();
    empty_.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void BlockPool::Refund(int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CHECK(bytes >= 0 && bytes <= charged_bytes_);
  charged_bytes_ -= bytes;
}

void BlockPool::Return(BlockRef::Block* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
#ifndef NDEBUG
  // A reader of a freed block shall see nonsense, not the rows that were there.
  std::memset(block->bytes.get(), 0xfb, static_cast<size_t>(block_bytes_));
#endif
  --live_blocks_;
  free_.push_back(block);
}

}  // namespace minke
