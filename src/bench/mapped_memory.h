// Anonymous memory of a chosen page size. The page size decides how much of the memory's bandwidth
// a read reaches, so measurements name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/result.h"

namespace minke {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

enum class PageSize { kHuge, kSmall };  // 2 MiB where the system has them, and 4 KiB

// Zeroed memory that begins at a multiple of kHugePageBytes; given back with the object.
class MappedMemory {
 public:
  // Every page is touched, so that none is the shared page of zeros. Errors: no such memory.
  static Result<MappedMemory> Map(size_t bytes, PageSize pages);
  MappedMemory() = default;
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Bytes of this process that lie in huge pages now; -1 where the system does not say.
int64_t HugePageBytesInUse();
// What a measurement beyond the caches reads: `wanted` bytes, or four times the largest cache where
// that is more, or a quarter of the available memory where that is less. Whole huge pages.
size_t WorkingSetBytes(size_t wanted);

}  // namespace minke
