#include "prefix_cache/damaged_records.h"

#include <iterator>

namespace minke {

void DamagedRecords::Add(const DamagedRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (by_parent_.size() < kDamagedRecordsMax) by_parent_.emplace(record.parent, record);
}

std::vector<DamagedRecord> DamagedRecords::After(const CacheKey& parent) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<DamagedRecord> records;
  const auto [begin, end] = by_parent_.equal_range(parent);
  for (auto next = begin; next != end; ++next) records.push_back(next->second);
  return records;
}

void DamagedRecords::Forget(const CacheKey& parent, const CacheKey& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto [begin, end] = by_parent_.equal_range(parent);
  for (auto next = begin; next != end;) {
    next = next->second.key == key ? by_parent_.erase(next) : std::next(next);
  }
}

}  // namespace minke
