#include "bench/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/available_memory.h"

namespace minke {
namespace {

constexpr size_t kSmallPageBytes = 4096;

// A line "Name:   1234 kB" of a file of the proc file system, in bytes; -1 if there is none.
int64_t ProcBytes(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + ":")) continue;
    return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
  }
  return -1;
}

}  // namespace

Result<MappedMemory> MappedMemory::Map(size_t bytes, PageSize pages) {
  MappedMemory memory;
  const size_t mapping_bytes = bytes + kHugePageBytes;
  void* mapping = mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       /*fd=*/-1, /*offset=*/0);
  if (mapping == MAP_FAILED) {
    return Fail(ErrorCode::kLimit,
                fmt::format("Cannot map {} bytes of memory: {}; measure with less, or end what "
                            "else uses it.",
                            bytes, std::strerror(errno)));
  }
  memory.mapping_ = static_cast<std::byte*>(mapping);
  memory.mapping_bytes_ = mapping_bytes;
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const size_t skipped = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  memory.data_ = memory.mapping_ + skipped;
  memory.size_ = bytes;
  // Advice: where the system has no huge pages the figures are those of small ones, and
  // HugePageBytesInUse() tells.
  madvise(memory.data_, bytes, pages == PageSize::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += kSmallPageBytes) {
    static_cast<volatile std::byte*>(memory.data_)[at] = std::byte{0};
  }
  return memory;
}

MappedMemory::~MappedMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept {
  *this = std::move(other);
}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

int64_t HugePageBytesInUse() {
  return ProcBytes("/proc/self/smaps_rollup", "AnonHugePages");
}

size_t WorkingSetBytes(size_t wanted) {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (cache > 0) wanted = std::max(wanted, 4 * static_cast<size_t>(cache));
  const auto available = static_cast<size_t>(AvailableMemoryBytes());
  if (available > 0) wanted = std::min(wanted, available / 4);
  return std::max(wanted / kHugePageBytes, size_t{1}) * kHugePageBytes;
}

}  // namespace minke
