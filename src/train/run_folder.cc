#include "train/run_folder.h"

#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "core/file.h"
#include "train/model_folder.h"
#include "train/trainer.h"

namespace minke::train {
namespace {

// The name of a file with weights, or of the index of several; empty: the folder has none.
Result<std::string> WeightsIn(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return name;
  }
  if (!error || error == std::errc::no_such_file_or_directory) return std::string();
  return Fail(ErrorCode::kIo, fmt::format("Cannot list {}: {}.", folder, error.message()));
}

}  // namespace

bool HasRun(const std::string& run) {
  return FileExists(JoinPath(run, kRunFile));
}

Status CheckNewRunFolder(const std::string& run) {
  if (HasRun(run)) {
    return Fail(
        fmt::format("{} holds a run already. --resume continues it; to start another one, "
                    "name a new folder.",
                    run));
  }
  const std::string weights = TRY(WeightsIn(run));
  if (!weights.empty()) {
    return Fail(
        fmt::format("{} holds a model already ({}), and a run writes files of the same "
                    "names; name a new folder for the run.",
                    run, weights));
  }
  // A run locks its folder before it writes to it.
  if (FileExists(JoinPath(run, kRunLockFile))) return {};
  for (const char* name : {kModelConfigFile, kTokenizerFile, kTokenizerConfigFile,
                           kTrainingConfigFile, kStateFileName, kLogFileName}) {
    if (!FileExists(JoinPath(run, name))) continue;
    return Fail(
        fmt::format("{} is no run's folder, but has a {} already, which a run would "
                    "replace; name a new folder for the run.",
                    run, name));
  }
  return {};
}

Result<StorageFile> LockRunFolder(const std::string& run) {
  const std::unique_ptr<StorageSystem> storage = MakePosixStorage();
  StorageFile file = TRY(storage->OpenFile(JoinPath(run, kRunLockFile), OpenMode::kOpenOrCreate));
  if (TRY(storage->Lock(file))) return file;
  return Fail(
      fmt::format("Another minke-train works in {}; wait for it or name another folder.", run));
}

}  // namespace minke::train
