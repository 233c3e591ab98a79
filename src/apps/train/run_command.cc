// minke-train run: prepares a run's folder, or takes up the run in it, and trains.
#include <malloc.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "apps/train/output_files.h"
#include "apps/train/progress.h"
#include "core/file.h"
#include "core/json.h"
#include "core/storage_system.h"
#include "train/blas_check.h"
#include "train/digest.h"
#include "train/export.h"
#include "train/generated_rows.h"
#include "train/model_folder.h"
#include "train/run_folder.h"
#include "train/stage_config.h"
#include "train/trainer.h"

namespace minke::train {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // or a handler could not write to it

// Ctrl-C and SIGTERM end the run after the current step; a second one ends the process. Blocking
// them for a signalfd would not do: OpenBLAS has threads before main() begins, which would be
// ended.
void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

Status CopyFile(const std::string& from, const std::string& to) {
  return WriteText(to, TRY(ReadFile(from, kTokenizerFileBytesMax)));
}

// Everything that the run is made of goes into its folder, so that it can be continued and exported
// without the files that it began with. REQUIRES: the folder is locked.
Status PrepareFolder(const RunFlags& flags, const std::string& config_path) {
  for (const char* name : {kModelConfigFile, kTokenizerFile, kTokenizerConfigFile}) {
    TRY_STATUS(CopyFile(JoinPath(flags.model, name), JoinPath(flags.run, name)));
  }
  TRY_STATUS(WriteText(JoinPath(flags.run, kLogFileName), ""));
  return CopyFile(config_path, JoinPath(flags.run, kTrainingConfigFile));
}

// What can be refused before anything is written. Makes the folder of a new run.
Status CheckFolder(const RunFlags& flags, bool resume) {
  if (resume && HasRun(flags.run)) return {};
  if (resume) {
    return Fail(ErrorCode::kNotFound, fmt::format("{} holds no run to continue: there is no {}.",
                                                  flags.run, JoinPath(flags.run, kRunFile)));
  }
  if (flags.model.empty() || flags.corpus.empty()) {
    return Fail(
        "A new run needs --model DIR (config.json and the tokenizer) and --corpus DIR; "
        "--resume continues the run in its folder.");
  }
  TRY_STATUS(CheckNewRunFolder(flags.run));
  return MakeFolder(flags.run);
}

// Locked, and free of what a killed process was writing.
Result<StorageFile> TakeFolder(const RunFlags& flags, bool resume) {
  TRY_STATUS(CheckFolder(flags, resume));
  StorageFile lock = TRY(LockRunFolder(flags.run));
  // Another process may have begun a run since the folder was looked at.
  if (!resume) TRY_STATUS(CheckNewRunFolder(flags.run));
  TRY_STATUS(RemoveUnfinishedStates(flags.run));
  return lock;
}

int64_t DefaultReplicas(const TrainingConfig& config) {
  int64_t rows = 1;
  for (const StageConfig& stage : config.stages) {
    for (const RowShape& shape : stage.shapes) rows = std::max(rows, shape.count);
  }
  const auto processors = static_cast<int64_t>(std::thread::hardware_concurrency());
  return std::clamp<int64_t>(processors, 1, std::min<int64_t>(rows, kReplicasMax));
}

Result<RunOrigin> MakeOrigin(const RunFlags& flags, const TrainingConfig& config, bool resume) {
  RunOrigin origin;
  if (resume) {
    origin = TRY(ReadRunOrigin(flags.run));
  } else {
    origin = {{}, config.seed, DefaultReplicas(config), Json()};
    if (!flags.init.empty()) origin.begun_from = TRY(ReadModelOrigin(flags.init));
  }
  if (!flags.corpus.empty()) origin.corpus = std::filesystem::absolute(flags.corpus).string();
  if (flags.seed) origin.seed = *flags.seed;
  if (flags.replicas > 0) origin.replicas = flags.replicas;
  return origin;
}

// Weights and position that the run goes on from.
Status Continue(const RunFlags& flags, Trainer* trainer) {
  const std::string state = trainer->StatePath();
  const std::string previous = PreviousStatePath(state);
  if (flags.resume_previous) return trainer->Resume(previous, flags.accept_changes);
  const bool has_previous = FileExists(previous);
  if (FileExists(state)) {
    const std::string way_out =
        has_previous ? fmt::format(
                           "The one before it is {}; --resume-previous continues from "
                           "there.",
                           previous)
                     : "There is no state before it; start the run again in a new folder.";
    return trainer->Resume(state, flags.accept_changes, way_out);
  }
  return Fail(fmt::format("There is no {}, {}.", state,
                          has_previous
                              ? "but a state before it; --resume-previous continues from there"
                              : "so nothing to continue; start the run again in a new folder"));
}

// Weights and position that a new run begins with.
Status Begin(const RunFlags& flags, Trainer* trainer) {
  if (!flags.stage.empty()) TRY_STATUS(trainer->BeginAtStage(flags.stage));
  if (!flags.branch.empty()) return trainer->Branch(flags.branch);
  if (flags.init.empty()) return {};
  const Status loaded = trainer->model().Load(flags.init);
  if (loaded) return {};
  return Fail(loaded.error().code,
              fmt::format("--init wants a model that `minke-train export` has written and whose "
                          "config.json is the run's; the weights of {} were refused: {}",
                          flags.init, loaded.error().message));
}

Result<RunOutcome> Train(Trainer* trainer) {
  Progress progress;
  RunCallbacks callbacks;
  callbacks.on_step = [&progress](const StepReport& report) { progress.Show(report); };
  callbacks.should_stop = [] { return stop_requested.load(); };
  Result<RunOutcome> outcome = trainer->Run(callbacks);
  progress.Finish();
  return outcome;
}

Status CheckBlas(bool allow_slow) {
  const BlasSpeed speed = MeasureBlas();
  const Status status = CheckBlasSpeed(speed);
  if (!status && !allow_slow) return status;
  if (!status) PrintNote(status.error().message);
  PrintNote(fmt::format("{:.0f} GFLOP/s a thread with {}.", speed.gflops, speed.library));
  return {};
}

// A step frees what the next one allocates again, tensor by tensor; given back to the system in
// between, every page of it would be cleared once more.
void KeepFreedMemory() {
  constexpr int kNever = 1 << 30;  // bytes
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
}

Result<RunOutcome> Run(const RunFlags& flags) {
  KeepFreedMemory();
  CatchStopSignals();
  UseOneThreadPerCaller();
  TRY_STATUS(CheckBlas(flags.allow_slow_blas));
  const bool resume = flags.resume || flags.resume_previous;
  const std::string in_run = JoinPath(flags.run, kTrainingConfigFile);
  std::string config_path = flags.config;
  if (config_path.empty()) {
    config_path = resume ? in_run : JoinPath(flags.model, kTrainingConfigFile);
  }
  const StorageFile lock = TRY(TakeFolder(flags, resume));
  if (!resume) TRY_STATUS(PrepareFolder(flags, config_path));
  TrainingConfig config = TRY(LoadTrainingConfig(config_path));
  const RunOrigin origin = TRY(MakeOrigin(flags, config, resume));
  ModelFolder folder = TRY(OpenModelFolder(JoinPath(flags.run, kModelConfigFile), flags.run));
  TRY_STATUS(CheckStages(config, folder.config));
  if (!flags.stage.empty()) TRY_STATUS(FindStage(config, flags.stage));
  if (!FileExists(origin.corpus)) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("There is no corpus {}; name its folder with --corpus DIR.", origin.corpus));
  }
  const std::unique_ptr<GeneratedRows> rows =
      TRY(GeneratedRows::Open(origin.corpus, std::move(folder.tokenizer)));
  RunIdentity identity{config.digest,
                       Digest(folder.config_text),
                       Digest(folder.tokenizer_text),
                       rows->digest(),
                       origin.seed,
                       origin.replicas};
  std::unique_ptr<Model> model =
      TRY(Model::Create(folder.config, folder.engram_token_map, origin.seed));
  Trainer trainer(std::move(config), std::move(identity), std::move(model), *rows, flags.run);
  TRY_STATUS(resume ? Continue(flags, &trainer) : Begin(flags, &trainer));
  NoteDamagedLog(trainer, flags.run);
  // Before the run counts as begun, so that there is always a state to continue from.
  if (!resume) TRY_STATUS(trainer.Save());
  TRY_STATUS(WriteRunOrigin(flags.run, origin));
  // Changes that were accepted are from now on the run's own.
  if (resume && config_path != in_run) TRY_STATUS(CopyFile(config_path, in_run));
  const RunOutcome outcome = TRY(Train(&trainer));
  const char* const end = outcome == RunOutcome::kFinished ? "Finished" : "Stopped";
  PrintNote(fmt::format("{} at step {} after {} of training; the state is {}.", end,
                        trainer.position().step, Duration(trainer.position().seconds),
                        trainer.StatePath()));
  return outcome;
}

}  // namespace

int RunTraining(const RunFlags& flags) {
  const Result<RunOutcome> outcome = Run(flags);
  if (!outcome) return PrintError(outcome.error());
  return *outcome == RunOutcome::kFinished ? kExitSuccess : kExitStopped;
}

}  // namespace minke::train
