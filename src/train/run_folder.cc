#include "train/run_folder.h"

#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "core/file.h"
#include "train/model_folder.h"
#include "train/replicas.h"
#include "train/stage_config.h"
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

Result<RunOrigin> ParseRunOrigin(const std::string& path) {
  const std::string text = TRY(ReadFile(path, kRunFileBytesMax));
  const Json json = TRY(ParseJson(text, path));
  RunOrigin origin;
  origin.corpus = TRY(JsonString(json, "corpus", path));
  const int64_t seed = TRY(JsonInt(json, "seed", path));
  origin.replicas = TRY(JsonInt(json, "replicas", path));
  if (seed < 0 || seed > kTrainingSeedMax) {
    return Fail(
        fmt::format("{}: seed must be from 0 to {}, found {}.", path, kTrainingSeedMax, seed));
  }
  origin.seed = static_cast<uint64_t>(seed);
  if (origin.replicas < 1 || origin.replicas > kReplicasMax) {
    return Fail(fmt::format("{}: replicas must be from 1 to {}, found {}.", path, kReplicasMax,
                            origin.replicas));
  }
  if (const Json* begun_from = json.Find(kBegunFrom)) {
    if (!IsOrigin(*begun_from)) {
      return Fail(
          fmt::format("{}: {} must be an object as `minke-train export` writes it to "
                      "minke.json.",
                      path, kBegunFrom));
    }
    origin.begun_from = *begun_from;
  }
  return origin;
}

}  // namespace

Status WriteRunOrigin(const std::string& run, const RunOrigin& origin) {
  Json json(
      JsonObject{{"corpus", origin.corpus}, {"seed", origin.seed}, {"replicas", origin.replicas}});
  if (!origin.begun_from.is_null()) json.Set(kBegunFrom, origin.begun_from);
  const std::string text = DumpJson(json, JsonStyle::kPretty) + '\n';
  return WriteFile(JoinPath(run, kRunFile), std::as_bytes(std::span(text.data(), text.size())));
}

Result<RunOrigin> ReadRunOrigin(const std::string& run) {
  const std::string path = JoinPath(run, kRunFile);
  Result<RunOrigin> origin = ParseRunOrigin(path);
  if (origin) return origin;
  return Fail(
      origin.error().code,
      fmt::format("{} What {} held is not in the states, so write it again by hand: corpus (its "
                  "folder), seed, replicas.",
                  origin.error().message, kRunFile));
}

bool IsOrigin(const Json& json) {
  const Json* origin = &json;
  for (int i = 0; i < kOriginsMax; ++i) {
    if (!origin->is_object()) return false;
    const Json* next = nullptr;
    for (const auto& [key, value] : origin->as_object()) {
      if (key == kBegunFrom) {
        next = &value;
      } else if (!value.is_number() && !value.is_string()) {
        return false;
      }
    }
    if (next == nullptr) return true;
    origin = next;
  }
  return false;
}

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
