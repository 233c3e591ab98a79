// The administration of the disk tier that only looks: ls, verify, export. Works beside a writer of
// this or another process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/storage_system.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/segment_file.h"
#include "prefix_cache/store_index.h"

namespace minke {

struct StoreView {
  StorageSystem& system;
  std::string directory;
  StoreIndex& index;
  SegmentFiles& files;
};

Result<std::vector<ListedRecord>> ListRecords(const StoreView& view,
                                              const std::optional<CacheKey>& tenant, size_t limit);
// Fills `damaged` with the rows of what could not be trusted.
Result<VerifyReport> VerifyRecords(const StoreView& view, std::vector<IndexRow>* damaged,
                                   const std::function<void(int64_t, int64_t)>& progress);
// Refuses to overwrite a file.
Result<int64_t> ExportRecords(const StoreView& view, const std::string& path, int64_t now_us,
                              const std::optional<CacheKey>& tenant);

}  // namespace minke
