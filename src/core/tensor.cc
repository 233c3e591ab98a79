#include "core/tensor.h"

#include <algorithm>
#include <new>

namespace minke {

namespace {
constexpr size_t kArenaBlockBytes = size_t{1} << 20;
}

void AlignedDelete::operator()(std::byte* pointer) const noexcept {
  ::operator delete[](pointer, std::align_val_t{kAlignmentBytes});
}

AlignedBytes AllocateAligned(size_t bytes) {
  const size_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  return AlignedBytes(static_cast<std::byte*>(
      ::operator new[](std::max(rounded, kAlignmentBytes), std::align_val_t{kAlignmentBytes})));
}

size_t Arena::capacity_bytes() const {
  size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

void* Arena::AllocateBytes(size_t bytes) {
  const size_t rounded = (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
  while (current_ < blocks_.size() && blocks_[current_].size - blocks_[current_].used < rounded) {
    ++current_;
    if (current_ < blocks_.size()) blocks_[current_].used = 0;
  }
  if (current_ == blocks_.size()) {
    const size_t size = std::max(rounded, kArenaBlockBytes);
    blocks_.push_back(Block{AllocateAligned(size), size, 0});
  }
  Block& block = blocks_[current_];
  void* result = block.bytes.get() + block.used;
  block.used += rounded;
  return result;
}

ArenaScope::ArenaScope(Arena& arena)
    : arena_(arena),
      block_(arena.current_),
      used_(arena.current_ < arena.blocks_.size() ? arena.blocks_[arena.current_].used : 0) {}

ArenaScope::~ArenaScope() {
  arena_.current_ = block_;
  if (block_ < arena_.blocks_.size()) arena_.blocks_[block_].used = used_;
}

}  // namespace minke
