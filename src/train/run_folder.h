// The folder of a run before anything is written to it: whether it may become one, and whose it is.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/storage_system.h"

namespace minke::train {

inline constexpr const char* kTrainingConfigFile = "training.json";
inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kRunLockFile = "lock";
inline constexpr uint64_t kRunFileBytesMax = uint64_t{256} << 10;
inline constexpr const char* kBegunFrom = "begun_from";  // key of kRunFile and of exported origins

bool HasRun(const std::string& run);

// An error where a new run in `run` would put its files over somebody else's: over another run, a
// model, or files of the names that it writes. What a run that did not begin has left is no error.
// Changes nothing.
Status CheckNewRunFolder(const std::string& run);

// The lock is held as long as the file is open; it goes with the process, however that ends. The
// folder must exist. An error where another process holds the lock.
Result<StorageFile> LockRunFolder(const std::string& run);

}  // namespace minke::train
