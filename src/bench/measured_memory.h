// Anonymous memory of a chosen page size. The page size decides how much of the memory's bandwidth
// a read reaches, so measurements name it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/page_memory.h"
#include "core/result.h"

namespace minke {

enum class PageSize { kHuge, kSmall };  // 2 MiB where the system has them, and 4 KiB

// Zeroed memory, every page of it touched, so that none is the shared page of zeros. Errors: no
// such memory.
Result<PageMemory> MapMeasuredMemory(size_t bytes, PageSize pages);

// Bytes of this process that lie in huge pages now; -1 where the system does not say.
int64_t HugePageBytesInUse();
// What a measurement beyond the caches reads: `wanted` bytes, or four times the largest cache where
// that is more, or a quarter of the available memory where that is less. Whole huge pages.
size_t WorkingSetBytes(size_t wanted);

}  // namespace minke
