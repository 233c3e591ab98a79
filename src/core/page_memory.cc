#include "core/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace minke {

Result<PageMemory> PageMemory::Map(size_t bytes, std::string_view what, std::string_view way_out) {
  PageMemory memory;
  if (bytes == 0) return memory;
  // Without a reserve: what is promised is more than what is used where a budget is generous.
  void* mapping = ::mmap(nullptr, bytes + kLargePageBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  if (mapping == MAP_FAILED) {
    return Fail(ErrorCode::kLimit,
                fmt::format("cannot get {} bytes of memory for {}: {}; {}", bytes, what,
                            std::generic_category().message(errno), way_out));
  }
  memory.mapping_ = static_cast<std::byte*>(mapping);
  memory.mapping_bytes_ = bytes + kLargePageBytes;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  memory.data_ = memory.mapping_ + (kLargePageBytes - address % kLargePageBytes) % kLargePageBytes;
  memory.size_ = bytes;
  ::madvise(memory.data_, bytes, MADV_HUGEPAGE);  // advice: small pages do, too
  return memory;
}

PageMemory::~PageMemory() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapping_bytes_);
}

PageMemory::PageMemory(PageMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace minke
