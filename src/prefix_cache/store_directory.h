// The directory of the disk tier: who may use it, what is in it, how much of the disk it takes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/storage_system.h"

namespace minke {

inline constexpr const char* kIndexName = "index.sqlite";
inline constexpr const char* kLockName = "lock";

struct StoreListing {
  std::map<int64_t, FileStatus> segments;  // by number
  int64_t index_bytes = 0;                 // disk blocks of the index, its log and the lock
  int64_t other_bytes = 0;                 // of files that are not the store's
};

// Creates the directory if a writer finds none, and refuses one that others may write to or that
// belongs to somebody else. Returns its real path.
Result<std::string> OpenStoreDirectory(StorageSystem& system, const std::string& directory,
                                       bool read_only);
// Locks the directory for as long as the file is open.
Result<StorageFile> LockStoreDirectory(StorageSystem& system, const std::string& directory);
// Refuses symbolic links and, among the store's own files, those of another owner.
Result<StoreListing> ListStoreDirectory(StorageSystem& system, const std::string& directory);
// Removes the index and its log: the segments say everything that it said. Fails and removes
// nothing where this process may not open and change them: then it cannot know that they are bad.
Status DiscardIndex(StorageSystem& system, const std::string& directory);
// Disk blocks of the index, its log and the lock.
Result<int64_t> IndexDiskBytes(StorageSystem& system, const std::string& directory);
// Of them, those of the log, which a checkpoint frees.
Result<int64_t> LogDiskBytes(StorageSystem& system, const std::string& directory);

}  // namespace minke
