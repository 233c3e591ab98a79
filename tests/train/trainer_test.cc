// The training loop on the stand-in model: it learns, it repeats itself exactly, and it continues
// after any interruption as if there had been none.
#include "train/trainer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/file.h"
#include "tests/support/temp_directory.h"
#include "tests/train/loop_rig.h"
#include "train/blas_check.h"

namespace minke::train {
namespace {

using testing::kRigPlan;
using testing::LoggedLosses;
using testing::MakeRig;
using testing::TempDirectory;

constexpr int64_t kPlanSteps = 12 + 2048 / 256;

void RunToTheEnd(const std::string& folder, int64_t replicas) {
  const auto rig = MakeRig(folder, replicas);
  const auto outcome = rig->trainer->Run({});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(*outcome, RunOutcome::kFinished);
}

std::vector<double> LossesOfWholeRun(int64_t replicas) {
  const TempDirectory directory;
  RunToTheEnd(directory.path(), replicas);
  return LoggedLosses(directory.path());
}

TEST(Trainer, LearnsAndLogsEveryStep) {
  const TempDirectory directory;
  RunToTheEnd(directory.path(), 1);
  const std::vector<double> losses = LoggedLosses(directory.path());
  ASSERT_EQ(static_cast<int64_t>(losses.size()), kPlanSteps);
  EXPECT_LT(losses.back(), losses.front() * 0.8);
  for (const char* name :
       {"training.state", "training.state.previous", "stage-1.state", "stage-2.state"}) {
    EXPECT_TRUE(FileExists(directory.Path(name))) << name;
  }
}

TEST(Trainer, RepeatsItselfWhateverTheTiming) {
  for (const int64_t replicas : {1, 2, 3}) {
    EXPECT_EQ(LossesOfWholeRun(replicas), LossesOfWholeRun(replicas)) << replicas;
  }
}

TEST(Trainer, ReplicasAgreeButForTheOrderOfSums) {
  const std::vector<double> one = LossesOfWholeRun(1);
  const std::vector<double> two = LossesOfWholeRun(2);
  ASSERT_EQ(one.size(), two.size());
  EXPECT_NEAR(one[0], two[0], 1e-6 * one[0]);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-3 * one[i]) << i;
}

TEST(Trainer, StopsWhenAskedAndContinuesExactly) {
  const std::vector<double> whole = LossesOfWholeRun(2);
  const TempDirectory directory;
  int64_t sessions = 0;
  for (bool finished = false; !finished; ++sessions) {
    const auto rig = MakeRig(directory.path(), 2);
    if (sessions > 0) {
      const Status resumed = rig->trainer->Resume(rig->trainer->StatePath(), false);
      ASSERT_TRUE(resumed) << resumed.error().message;
    }
    int64_t steps = 0;
    RunCallbacks callbacks;
    callbacks.on_step = [&steps](const StepReport&) { ++steps; };
    callbacks.should_stop = [&steps] { return steps == 3; };
    const auto outcome = rig->trainer->Run(callbacks);
    ASSERT_TRUE(outcome) << outcome.error().message;
    finished = *outcome == RunOutcome::kFinished;
  }
  EXPECT_EQ(sessions, (kPlanSteps + 2) / 3);
  EXPECT_EQ(LoggedLosses(directory.path()), whole);
}

// Trains in `folder` in a process of its own until it ends or is killed.
pid_t StartWorker(const std::string& folder) {
  const pid_t child = fork();
  if (child != 0) return child;
  execl(MINKE_TRAIN_LOOP_WORKER, MINKE_TRAIN_LOOP_WORKER, folder.c_str(), nullptr);
  _exit(127);
}

// Waits until the log grows, so that the kill falls into training and not into loading libtorch;
// false if the worker ends before.
bool WaitForStep(const std::string& log, pid_t worker) {
  std::error_code ignored;
  for (uintmax_t last = ~uintmax_t{0};;) {
    const uintmax_t size =
        std::filesystem::exists(log) ? std::filesystem::file_size(log, ignored) : 0;
    if (size > last) return true;
    last = size;
    siginfo_t info = {};
    waitid(P_PID, static_cast<id_t>(worker), &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_pid == worker) return false;
    usleep(200);
  }
}

TEST(Trainer, ContinuesAfterKillAtAnyMoment) {
  const std::vector<double> whole = LossesOfWholeRun(2);
  const TempDirectory directory;
  int kills = 0;
  for (int tries = 0; tries < 100; ++tries) {
    const pid_t worker = StartWorker(directory.path());
    ASSERT_GT(worker, 0);
    // Moments spread over the writing of log and state; more steps with each try.
    if (WaitForStep(directory.Path("log.jsonl"), worker)) {
      usleep(static_cast<useconds_t>(tries) * 100'000);
    }
    kill(worker, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(worker, &status, 0), worker);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ++kills;
  }
  EXPECT_GT(kills, 1);
  EXPECT_EQ(LoggedLosses(directory.path()), whole);
}

// Files of this process may have no more bytes than that while it lives, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_ = {};
};

void Damage(const std::string& path) {
  std::error_code error;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2, error);
  ASSERT_FALSE(error);
}

Result<RunOutcome> StopAfter(Trainer& trainer, int64_t limit) {
  int64_t steps = 0;
  RunCallbacks callbacks;
  callbacks.on_step = [&steps](const StepReport&) { ++steps; };
  callbacks.should_stop = [&steps, limit] { return steps >= limit; };
  return trainer.Run(callbacks);
}

TEST(Trainer, TheStateBeforeOutlivesADamagedOne) {
  const std::vector<double> whole = LossesOfWholeRun(1);
  const TempDirectory directory;
  ASSERT_TRUE(StopAfter(*MakeRig(directory.path(), 1)->trainer, 5));
  const std::string state = directory.Path("training.state");
  Damage(state);
  {
    const auto rig = MakeRig(directory.path(), 1);
    const Status refused = rig->trainer->Resume(state, false, "Take the one before.");
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.ends_with("Take the one before."));
    ASSERT_TRUE(rig->trainer->Resume(PreviousStatePath(state), false));
    const FileSizeLimit full(16);
    ASSERT_FALSE(StopAfter(*rig->trainer, 0));  // cannot write the state
  }
  const auto again = MakeRig(directory.path(), 1);
  const Status resumed = again->trainer->Resume(PreviousStatePath(state), false);
  ASSERT_TRUE(resumed) << resumed.error().message;
  ASSERT_TRUE(StopAfter(*again->trainer, 0));
  // Both are whole now.
  ASSERT_TRUE(MakeRig(directory.path(), 1)->trainer->Resume(PreviousStatePath(state), false));
  const auto last = MakeRig(directory.path(), 1);
  ASSERT_TRUE(last->trainer->Resume(state, false));
  ASSERT_TRUE(last->trainer->Run({}));
  EXPECT_EQ(LoggedLosses(directory.path()), whole);
}

TEST(Trainer, ADamagedLogIsCutAndSaidToBe) {
  const TempDirectory directory;
  ASSERT_TRUE(StopAfter(*MakeRig(directory.path(), 1)->trainer, 6));
  std::string log = ReadFile(directory.Path("log.jsonl"), kLogBytesMax).value();
  const size_t second = log.find('\n') + 1;
  const std::string first = log.substr(0, second);
  log[second] = 'x';
  directory.Write("log.jsonl", log);
  const auto rig = MakeRig(directory.path(), 1);
  const Status resumed = rig->trainer->Resume(rig->trainer->StatePath(), false);
  ASSERT_TRUE(resumed) << resumed.error().message;
  EXPECT_EQ(rig->trainer->damaged_log_line(), 2);
  EXPECT_EQ(ReadFile(directory.Path("log.jsonl"), kLogBytesMax).value(), first);
  const auto next = MakeRig(directory.path(), 1);
  ASSERT_TRUE(next->trainer->Resume(next->trainer->StatePath(), false));
  EXPECT_EQ(next->trainer->damaged_log_line(), 0);
}

TEST(Trainer, ARunThatIsKilledBetweenStagesHasTheStateOfTheFirst) {
  const TempDirectory directory;
  ASSERT_TRUE(StopAfter(*MakeRig(directory.path(), 1)->trainer, 12));
  // training.state cannot be replaced by a file, so the run ends where a kill would end it.
  const std::string state = directory.Path("training.state");
  std::filesystem::rename(state, directory.Path("last"));
  const auto rig = MakeRig(directory.path(), 1);
  ASSERT_TRUE(rig->trainer->Resume(directory.Path("last"), false));
  std::filesystem::create_directory(state);
  ASSERT_FALSE(rig->trainer->Run({}));
  const auto branch = MakeRig(directory.path(), 1);
  EXPECT_TRUE(branch->trainer->Branch(directory.Path("stage-1.state")));
}

TEST(Trainer, RefusesToContinueAnotherRun) {
  const TempDirectory directory;
  RunToTheEnd(directory.path(), 1);
  const auto other = MakeRig(directory.path(), 2);
  const Status refused = other->trainer->Resume(other->trainer->StatePath(), false);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("number of replicas"), std::string::npos);
  EXPECT_TRUE(other->trainer->Resume(other->trainer->StatePath(), true));
  std::string plan = kRigPlan;
  plan.replace(plan.find("2048"), 4, "4096");
  const auto longer = MakeRig(directory.path(), 1, plan);
  const Status changed = longer->trainer->Resume(longer->trainer->StatePath(), false);
  ASSERT_FALSE(changed);
  EXPECT_NE(changed.error().message.find("training config"), std::string::npos);
}

TEST(Trainer, StopsAtAGateThatIsNotMet) {
  const TempDirectory directory;
  std::string plan = kRigPlan;
  plan.replace(plan.find("\"warmup_steps\": 4"), 17, "\"gate_first\": 0.999");
  const auto rig = MakeRig(directory.path(), 1, plan);
  const auto outcome = rig->trainer->Run({});
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("first"), std::string::npos);
  EXPECT_NE(outcome.error().message.find("99.9 %"), std::string::npos) << outcome.error().message;
  EXPECT_EQ(rig->trainer->position().step, 12);
}

TEST(Trainer, BranchesTakeWeightsButNotThePlace) {
  const TempDirectory directory;
  RunToTheEnd(directory.path(), 1);
  std::filesystem::create_directory(directory.Path("branch"));
  const auto rig = MakeRig(directory.Path("branch"), 1);
  ASSERT_TRUE(rig->trainer->Branch(directory.Path("stage-1.state")));
  EXPECT_EQ(rig->trainer->position().step, 12);
  EXPECT_EQ(rig->trainer->position().stage, 0);
  ASSERT_TRUE(rig->trainer->Run({}));
  EXPECT_EQ(rig->trainer->position().step, 12 + kPlanSteps);
}

constexpr const char* kIndexStage = R"(, {"name": "index", "steps": 3,
   "rows": [{"length": 64, "count": 4}], "kinds": {"document": 1}, "train": "indexers",
   "distill": 1}]})";

// The stand-in's index loss hangs on one parameter; the router's bias moves without a gradient.
TEST(Trainer, AStageOfTheIndexersLeavesEverythingElse) {
  std::string plan = kRigPlan;
  plan.replace(plan.rfind("]}"), 2, kIndexStage);
  const TempDirectory directory;
  const auto rig = MakeRig(directory.path(), 2, plan);
  ASSERT_TRUE(rig->trainer->BeginAtStage("index"));
  std::vector<torch::Tensor> before;
  for (const Parameter& parameter : rig->trainer->model().parameters()) {
    before.push_back(parameter.value.detach().clone());
  }
  const auto outcome = rig->trainer->Run({});
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_EQ(rig->trainer->position().step, 3);
  EXPECT_EQ(LoggedLosses(directory.path()).size(), 3u);
  for (size_t i = 0; i < before.size(); ++i) {
    const Parameter& parameter = rig->trainer->model().parameters()[i];
    EXPECT_EQ(torch::equal(before[i], parameter.value.detach()), parameter.name != "mix.weight")
        << parameter.name;
  }
}

TEST(Trainer, RefusesDraftsOfAModelWithoutDraftStages) {
  std::string plan = kRigPlan;
  plan.replace(plan.find(R"("warmup_steps")"), 0, R"("drafts": 1, )");
  const TempDirectory directory;
  const auto outcome = MakeRig(directory.path(), 1, plan)->trainer->Run({});
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message.find("the model has no DSpark stages"), std::string::npos);
}

TEST(Trainer, AnUnknownStageIsRefusedWithThoseThatThereAre) {
  const TempDirectory directory;
  const Status status = MakeRig(directory.path(), 1)->trainer->BeginAtStage("third");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("\"first\", \"second\""), std::string::npos);
}

TEST(BlasCheck, MeasuresAndNamesTheLibrary) {
  UseOneThreadPerCaller();
  const BlasSpeed speed = MeasureBlas();
  EXPECT_GT(speed.gflops, 0.1);
  const Status slow = CheckBlasSpeed({1.5, "libblas.so"});
  ASSERT_FALSE(slow);
  EXPECT_NE(slow.error().message.find("libopenblas"), std::string::npos);
  EXPECT_NE(slow.error().message.find("libblas.so"), std::string::npos);
  EXPECT_TRUE(CheckBlasSpeed({kBlasSpeedMin, "libopenblas.so"}));
}

}  // namespace
}  // namespace minke::train
