#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/json.h"

namespace minke::train {
namespace {

constexpr double kSecondsPerMinute = 60;
constexpr double kGateMemory = 0.9;  // of the running mean, a step

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Rates RatesOf(const StageConfig& stage, double factor) {
  return {stage.muon_rate * factor, stage.adam_rate * factor, stage.embedding_rate * factor,
          stage.adam_rate * stage.engram_factor * factor, stage.structured_factor};
}

JsonArray QualityJson(const std::vector<IndexQuality>& quality) {
  JsonArray list;
  for (const IndexQuality& entry : quality) {
    list.emplace_back(JsonObject{{"layer", entry.layer},
                                 {"top1", entry.top1_recall},
                                 {"mass", entry.mass_recall},
                                 {"pool", entry.pool_recall}});
  }
  return list;
}

std::string LogLine(const StepReport& report) {
  const LossSums& sums = report.result.sums;
  JsonObject first;
  JsonObject value;
  for (size_t kind = 0; kind < kRowKindCount; ++kind) {
    const char* const name = RowKindName(static_cast<RowKind>(kind));
    if (sums.first[kind].total > 0) first.emplace_back(name, sums.first[kind].share());
    if (sums.value[kind].total > 0) value.emplace_back(name, sums.value[kind].share());
  }
  JsonObject line{{"step", report.position.step},
                  {"stage", report.stage->name},
                  {"loss", report.result.loss},
                  {"recall_loss", report.recall_loss},
                  {"text_nats", report.text_nats_per_token},
                  {"first", std::move(first)},
                  {"value", std::move(value)},
                  {"restated", sums.restated.share()},
                  {"index_loss", report.result.index_loss},
                  {"index", QualityJson(report.result.index_quality)},
                  {"rate_factor", report.rate_factor},
                  {"gradient_norm", report.gradient_norm},
                  {"step_tokens", report.step_tokens},
                  {"tokens", report.position.tokens},
                  {"seconds", report.position.seconds}};
  const DraftSums& drafts = report.result.drafts;
  if (drafts.proposals > 0) {
    const auto proposals = static_cast<double>(drafts.proposals);
    line.emplace_back("draft_nats", drafts.nats / proposals);
    line.emplace_back("draft_right", static_cast<double>(drafts.right) / proposals);
  }
  return DumpJson(std::move(line), JsonStyle::kCompact) + '\n';
}

Result<int64_t> StepOfLogLine(std::string_view line, const std::string& path) {
  const Json json = TRY(ParseJson(line, path));
  return JsonInt(json, "step", path);
}

}  // namespace

Trainer::Trainer(TrainingConfig config, RunIdentity identity, std::unique_ptr<Model> model,
                 const RowSource& source, std::string run_dir)
    : config_(std::move(config)),
      identity_(std::move(identity)),
      model_(std::move(model)),
      source_(source),
      run_dir_(std::move(run_dir)),
      replicas_(*model_, static_cast<int>(identity_.replicas)),
      optimizer_(model_->parameters(), static_cast<int>(identity_.replicas)) {}

std::string Trainer::StatePath() const {
  return JoinPath(run_dir_, kStateFileName);
}

const StageConfig& Trainer::stage() const {
  return config_.stages[static_cast<size_t>(position_.stage)];
}

Status Trainer::Resume(const std::string& state_path, bool accept_changes,
                       std::string_view way_out) {
  const StateFile state =
      TRY(ReadState(state_path, model_->parameters(), optimizer_.moments(), way_out));
  if (!accept_changes) TRY_STATUS(CheckIdentity(state_path, state.identity, identity_));
  if (state.position.stage < 0 ||
      state.position.stage > static_cast<int64_t>(config_.stages.size())) {
    return Fail(fmt::format("{} is in stage {}, but the training config has {} stages.", state_path,
                            state.position.stage + 1, config_.stages.size()));
  }
  position_ = state.position;
  saved_at_seconds_ = position_.seconds;
  state_is_whole_ = state_path == StatePath();
  return TrimLog();
}

Status Trainer::Branch(const std::string& state_path) {
  BeginAt(TRY(ReadState(state_path, model_->parameters(), optimizer_.moments())).position);
  return {};
}

Status Trainer::BranchMatching(const std::string& state_path, int64_t* taken) {
  const StateFile state =
      TRY(ReadMatchingState(state_path, model_->parameters(), optimizer_.moments(), taken));
  BeginAt(state.position);
  return {};
}

Status Trainer::BeginAtStage(std::string_view name) {
  position_.stage = TRY(FindStage(config_, name));
  return {};
}

// Steps go on counting, so that the branch sees rows that its trunk has not seen.
void Trainer::BeginAt(const RunPosition& trunk) {
  position_.step = trunk.step;
  position_.tokens = trunk.tokens;
  position_.seconds = trunk.seconds;
  saved_at_seconds_ = position_.seconds;
}

Status Trainer::TrimLog() {
  const std::string path = JoinPath(run_dir_, kLogFileName);
  if (!FileExists(path)) return {};
  const std::string text = TRY(ReadFile(path, kLogBytesMax));
  size_t keep = 0;
  int64_t number = 1;
  // A line that was being written when the run ended has no newline and is not kept either.
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', keep)) {
    const Result<int64_t> step =
        StepOfLogLine(std::string_view(text).substr(keep, end - keep), path);
    // Nothing is trained from the log, so damage in it does not keep the run from going on.
    if (!step) damaged_log_line_ = number;
    if (!step || *step > position_.step) break;
    keep = end + 1;
    ++number;
  }
  return WriteFile(path, std::as_bytes(std::span(text.data(), keep)));
}

Status Trainer::OpenLog() {
  const std::string path = JoinPath(run_dir_, kLogFileName);
  log_.open(path, std::ios::app | std::ios::binary);
  if (!log_) return Fail(ErrorCode::kIo, fmt::format("Cannot write to {}.", path));
  return {};
}

Status Trainer::Save() {
  saved_at_seconds_ = position_.seconds;
  TRY_STATUS(WriteTo(StatePath(), state_is_whole_ ? OldState::kKeep : OldState::kDrop));
  state_is_whole_ = true;
  return {};
}

Status Trainer::WriteTo(const std::string& path, OldState old_state) {
  return WriteState(path, {identity_, position_}, model_->parameters(), optimizer_.moments(),
                    old_state);
}

Result<StepReport> Trainer::Step() {
  const auto start = std::chrono::steady_clock::now();
  StepReport report;
  report.stage = &stage();
  const StepPlan plan = PlanStep(stage(), identity_.seed, position_.step);
  report.rate_factor = RateFactor(stage(), position_.in_stage);
  report.result = TRY(replicas_.Run(source_, stage(), plan, identity_.seed, position_.step));
  report.gradient_norm = optimizer_.Step(report.result.gradients,
                                         RatesOf(stage(), report.rate_factor), replicas_.pool());
  report.result.gradients.clear();
  if (!std::isfinite(report.result.loss) || !std::isfinite(report.gradient_norm)) {
    return Fail(
        fmt::format("Step {} of stage {} has the loss {} and gradients of norm {}, which "
                    "are no numbers to learn from. Continue from the last state with "
                    "--resume and lower rates (--accept-changes).",
                    position_.step + 1, stage().name, report.result.loss, report.gradient_norm));
  }
  if (report.result.expert_loads.defined() && !stage().indexers_only) {
    model_->UpdateRouterBias(report.result.expert_loads, stage().router_bias_rate);
  }
  if (report.result.draft_loads.defined()) {
    model_->UpdateDraftRouterBias(report.result.draft_loads, stage().router_bias_rate);
  }
  const LossSums& sums = report.result.sums;
  if (sums.recall_weight > 0) report.recall_loss = sums.recall / sums.recall_weight;
  if (sums.text_tokens > 0) {
    report.text_nats_per_token = sums.text_nats / static_cast<double>(sums.text_tokens);
  }
  const Accuracy& list = sums.first[static_cast<size_t>(RowKind::kList)];
  if (list.total > 0) {
    position_.gate_first = kGateMemory * position_.gate_first + (1 - kGateMemory) * list.share();
  }
  report.step_tokens = plan.shape.length * plan.shape.count;
  report.step_seconds = SecondsSince(start);
  ++position_.step;
  ++position_.in_stage.steps;
  position_.tokens += report.step_tokens;
  position_.in_stage.tokens += report.step_tokens;
  position_.seconds += report.step_seconds;
  position_.in_stage.seconds += report.step_seconds;
  report.position = position_;
  report.seconds_left = SecondsLeft();
  return report;
}

double Trainer::SecondsLeft() const {
  if (position_.tokens == 0 || position_.in_stage.steps == 0) return 0;
  const StageCounters& done = position_.in_stage;
  const double seconds_per_token = done.seconds / static_cast<double>(done.tokens);
  double left = 0;
  for (size_t i = static_cast<size_t>(position_.stage); i < config_.stages.size(); ++i) {
    const StageConfig& entry = config_.stages[i];
    double tokens_per_step = 0;
    double shares = 0;
    for (const RowShape& shape : entry.shapes) {
      tokens_per_step += shape.share * static_cast<double>(shape.length * shape.count);
      shares += shape.share;
    }
    tokens_per_step /= shares;
    const bool current = i == static_cast<size_t>(position_.stage);
    const double rest = current ? 1 - std::min(1.0, StageProgress(entry.length, done)) : 1;
    if (entry.length.minutes > 0) {
      left += rest * entry.length.minutes * kSecondsPerMinute;
    } else if (entry.length.tokens > 0) {
      left += rest * static_cast<double>(entry.length.tokens) * seconds_per_token;
    } else {
      left += rest * static_cast<double>(entry.length.steps) * tokens_per_step * seconds_per_token;
    }
  }
  return left;
}

Status Trainer::FinishStage() {
  if (position_.gate_first < stage().gate_first) {
    TRY_STATUS(Save());
    return Fail(
        fmt::format("Stage {} ended with {:.1f} % right first tokens on list rows, below "
                    "its gate of {:.1f} %: the look-up has not been learned, and further "
                    "stages would not bring it. Start again with another --seed, or give "
                    "the stage more steps and continue with --resume --accept-changes.",
                    stage().name, position_.gate_first * 100, stage().gate_first * 100));
  }
  ++position_.stage;
  position_.in_stage = {};
  position_.gate_first = 0;
  // The stage's own state first: a run that is killed in between finishes the stage once more,
  // while one that has begun the next stage would never come back to write it.
  TRY_STATUS(
      WriteTo(JoinPath(run_dir_, fmt::format("stage-{}.state", position_.stage)), OldState::kDrop));
  return Save();
}

Result<RunOutcome> Trainer::Run(const RunCallbacks& callbacks) {
  TRY_STATUS(CheckStages(config_, model_->config()));
  TRY_STATUS(OpenLog());
  while (position_.stage < static_cast<int64_t>(config_.stages.size())) {
    if (StageProgress(stage().length, position_.in_stage) >= 1) {
      TRY_STATUS(FinishStage());
      continue;
    }
    if (callbacks.should_stop && callbacks.should_stop()) {
      TRY_STATUS(Save());
      return RunOutcome::kStopped;
    }
    const StepReport report = TRY(Step());
    log_ << LogLine(report) << std::flush;
    if (!log_) {
      return Fail(ErrorCode::kIo, fmt::format("Cannot write to {}; is the disk full?",
                                              JoinPath(run_dir_, kLogFileName)));
    }
    if (callbacks.on_step) callbacks.on_step(report);
    const double unsaved = position_.seconds - saved_at_seconds_;
    if (unsaved >= config_.checkpoint_minutes * kSecondsPerMinute) TRY_STATUS(Save());
  }
  return RunOutcome::kFinished;
}

}  // namespace minke::train
