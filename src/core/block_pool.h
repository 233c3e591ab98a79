// Memory of a fixed block size under a budget, shared by reference. The pool holds the packed rows
// of every sequence and of the prefix cache; a second one holds snapshots.
//
// Thread safety: references may be copied and dropped on any thread (the disk writer holds some);
// the bytes of a block are written only while one reference exists, or before it is shared.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/tensor.h"

namespace minke {

class BlockPool;

// One share in a block. An empty reference holds none.
class BlockRef {
 public:
  BlockRef() = default;
  ~BlockRef() { Reset(); }
  BlockRef(const BlockRef& other);
  BlockRef(BlockRef&& other) noexcept;
  BlockRef& operator=(BlockRef other) noexcept;

  explicit operator bool() const { return block_ != nullptr; }
  std::byte* bytes() const { return block_->bytes.get(); }  // [pool's block_bytes]
  // Whether others hold the block too. Only the single holder may write to it.
  bool shared() const { return block_->references.load(std::memory_order_acquire) > 1; }
  bool SameBlock(const BlockRef& other) const { return block_ == other.block_; }
  void Reset();

 private:
  friend class BlockPool;
  struct Block {
    AlignedBytes bytes;
    std::atomic<int64_t> references = 0;
    BlockPool* pool = nullptr;
  };
  explicit BlockRef(Block* block) : block_(block) {}
  Block* block_ = nullptr;
};

// What the pool holds at this moment. used + reserved <= budget, always.
struct BlockPoolUsage {
  int64_t budget_bytes = 0;
  int64_t used_bytes = 0;      // live blocks, and bytes charged
  int64_t reserved_bytes = 0;  // set aside for admitted work, not yet taken
  int64_t live_blocks = 0;
  int64_t charged_bytes = 0;  // of used_bytes: accounted for, held elsewhere
};

class BlockPool {
 public:
  // REQUIRES block_bytes > 0. Outlives every reference.
  BlockPool(int64_t block_bytes, int64_t budget_bytes);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int64_t block_bytes() const { return block_bytes_; }
  BlockPoolUsage usage() const;

  // An uninitialised block, or an empty reference where the budget has no room for one more.
  BlockRef Allocate();
  // Admission: sets room for `blocks` blocks aside, or says that there is not so much.
  [[nodiscard]] bool Reserve(int64_t blocks);
  void Unreserve(int64_t blocks);
  // A block out of what was set aside. REQUIRES a reservation of at least one block.
  BlockRef AllocateReserved();
  // Bytes that somebody else holds and that count here: false if there is no room for them.
  [[nodiscard]] bool Charge(int64_t bytes);
  void Refund(int64_t bytes);

 private:
  friend class BlockRef;
  int64_t Room() const;  // bytes; REQUIRES mutex_ held
  BlockRef Take();       // REQUIRES mutex_ held and room for it
  void Return(BlockRef::Block* block);

  const int64_t block_bytes_;
  const int64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<BlockRef::Block>> blocks_;  // every block ever made
  std::vector<BlockRef::Block*> free_;                    // with memory, ready to be taken
  std::vector<BlockRef::Block*> empty_;                   // without
  int64_t live_blocks_ = 0;
  int64_t reserved_blocks_ = 0;
  int64_t charged_bytes_ = 0;
};

}  // namespace minke
