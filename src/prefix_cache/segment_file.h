// Segment files: their names, reading one record out of them, and searching them for records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/storage_system.h"
#include "prefix_cache/record_format.h"

namespace minke {

inline constexpr int64_t kSegmentNumberMax = (int64_t{1} << 31) - 1;
inline constexpr int64_t kSegmentOffsetMax = int64_t{1} << 37;  // bytes

std::string SegmentName(int64_t number);  // "segment-00000001.mks"
std::optional<int64_t> ParseSegmentName(std::string_view name);

// Open segments, so that a read does not have to open its file. Holds at most kOpenSegmentsMax.
// Thread safety: all methods may be called from any thread.
class SegmentFiles {
 public:
  SegmentFiles(StorageSystem& system, std::string directory);

  // Reads as ReadAt() does. kNotFound if the segment's file is gone.
  Result<int64_t> ReadAt(int64_t number, int64_t offset,
                         std::span<const std::span<std::byte>> parts);
  // Closes it for good, before its file is removed; waits for reads that are under way.
  void Retire(int64_t number);
  std::string Path(int64_t number) const;

 private:
  StorageSystem& system_;
  const std::string directory_;
  std::shared_mutex mutex_;
  std::map<int64_t, StorageFile> open_;  // guarded by mutex_
  // Guarded by mutex_. A read that opened the file just before it was removed must not keep it.
  std::set<int64_t> retired_;
};
inline constexpr size_t kOpenSegmentsMax = 128;

// One record found by a search.
struct FoundRecord {
  RecordHeader header;
  int64_t offset = 0;
  int64_t bytes = 0;                // with padding
  bool intact = false;              // false: the header is good, tokens or payload are not
  std::span<const std::byte> body;  // tokens and payload; empty unless they were asked for
};

struct ScanRange {
  int64_t begin = 0;
  int64_t end = 0;
};

struct ScanOutcome {
  int64_t damaged = 0;            // stretches between records that hold something else
  std::vector<ScanRange> litter;  // where: from the end of one record to the next
  bool torn_tail = false;         // the range does not end with the end of a record
};

// Calls `found` for each record that lies whole in [begin, end), in order. After a bad spot it goes
// on at the next multiple of kRecordAlignBytes with a good header. With `bodies` false only headers
// are read, and `intact` is not to be relied on.
Result<ScanOutcome> ScanRecords(StorageSystem& system, const StorageFile& file, ScanRange range,
                                bool bodies,
                                const std::function<Status(const FoundRecord&)>& found);

}  // namespace minke
