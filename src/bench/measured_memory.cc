#include "bench/measured_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "core/available_memory.h"

namespace minke {
namespace {

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

Result<PageMemory> MapMeasuredMemory(size_t bytes, PageSize pages) {
  PageMemory memory =
      TRY(PageMemory::Map(bytes, "measuring", "measure with less, or end what else uses memory"));
  // Advice: where the system has no huge pages the figures are those of small ones, and
  // HugePageBytesInUse() tells.
  if (pages == PageSize::kSmall) madvise(memory.bytes().data(), bytes, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += kPageBytes) {
    static_cast<volatile std::byte*>(memory.bytes().data())[at] = std::byte{0};
  }
  return memory;
}

int64_t HugePageBytesInUse() {
  return ProcBytes("/proc/self/smaps_rollup", "AnonHugePages");
}

size_t WorkingSetBytes(size_t wanted) {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  if (cache > 0) wanted = std::max(wanted, 4 * static_cast<size_t>(cache));
  const auto available = static_cast<size_t>(AvailableMemoryBytes());
  if (available > 0) wanted = std::min(wanted, available / 4);
  return std::max(wanted / kLargePageBytes, size_t{1}) * kLargePageBytes;
}

}  // namespace minke
