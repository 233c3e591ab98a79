// Records that were found damaged before anybody asked for them: at opening, by a scan, or while
// others were looked for. They are removed, so that the prompt that needs one would find nothing
// there; from this list it learns why, once.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "prefix_cache/block_store.h"

namespace minke {

class DamagedRecords {
 public:
  // Beyond kDamagedRecordsMax nothing is added.
  void Add(const DamagedRecord& record);
  std::vector<DamagedRecord> After(const CacheKey& parent) const;
  void Forget(const CacheKey& parent, const CacheKey& key);

 private:
  mutable std::mutex mutex_;
  std::unordered_multimap<CacheKey, DamagedRecord, CacheKeyHash> by_parent_;  // guarded by mutex_
};
inline constexpr size_t kDamagedRecordsMax = 16384;  // in memory, about 2 MiB

}  // namespace minke
