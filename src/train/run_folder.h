// The folder of a run before anything is written to it: whether it may become one, and whose it is.
#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"
#include "core/result.h"
#include "core/storage_system.h"

namespace minke::train {

inline constexpr const char* kTrainingConfigFile = "training.json";
inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kRunLockFile = "lock";
inline constexpr uint64_t kRunFileBytesMax = uint64_t{256} << 10;
inline constexpr const char* kBegunFrom = "begun_from";  // key of kRunFile and of exported origins

// What a run's folder remembers of the command that started it.
struct RunOrigin {
  std::string corpus;
  uint64_t seed = 0;
  int64_t replicas = 1;
  Json begun_from;  // the origin of the model whose weights it began with; null: none, or untold
};
Status WriteRunOrigin(const std::string& run, const RunOrigin& origin);
// Errors name the file, the member and the way out.
Result<RunOrigin> ReadRunOrigin(const std::string& run);

// What may be an origin: an object of numbers and texts, whose begun_from is another such, and so
// on, at most kOriginsMax of them.
inline constexpr int kOriginsMax = 16;
bool IsOrigin(const Json& json);

bool HasRun(const std::string& run);

// An error where a new run in `run` would put its files over somebody else's: over another run, a
// model, or files of the names that it writes. What a run that did not begin has left is no error.
// Changes nothing.
Status CheckNewRunFolder(const std::string& run);

// The lock is held as long as the file is open; it goes with the process, however that ends. The
// folder must exist. An error where another process holds the lock.
Result<StorageFile> LockRunFolder(const std::string& run);

}  // namespace minke::train
