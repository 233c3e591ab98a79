// Anonymous memory for weights that are read from files and for measurements: whole pages, for
// which direct I/O asks, and huge ones where the system has them, because kernels read weights at
// the pace of memory.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "core/result.h"

namespace minke {

inline constexpr size_t kPageBytes = 4096;  // also of direct I/O, on every usual file system
inline constexpr size_t kLargePageBytes = size_t{2} << 20;

constexpr size_t RoundUpToPage(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Memory that begins at a multiple of 2 MiB and is given back with the object. A page takes memory
// from its first use on.
class PageMemory {
 public:
  // `what` names its purpose in errors, and `way_out` what would help: no such memory.
  static Result<PageMemory> Map(size_t bytes, std::string_view what,
                                std::string_view way_out = "give --weights-ram less");
  PageMemory() = default;
  ~PageMemory();
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&& other) noexcept;

  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace minke
