#include "apps/train/progress.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "core/file.h"

namespace minke::train {
namespace {

constexpr double kMemory = 0.95;  // of a mean, a step
constexpr std::chrono::seconds kTerminalInterval{1};
constexpr std::chrono::seconds kFileInterval{30};

}  // namespace

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(0.0, seconds));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

void Progress::Mean::Add(double next) {
  value = kMemory * value + next;
  weight = kMemory * weight + 1;
}

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::Take(const StepReport& report) {
  if (stage_ != report.stage->name) {  // the losses of stages are not alike
    *this = Progress();
    stage_ = report.stage->name;
  }
  const LossSums& sums = report.result.sums;
  const Accuracy& list = sums.first[static_cast<size_t>(RowKind::kList)];
  const Accuracy& document = sums.first[static_cast<size_t>(RowKind::kDocument)];
  step_ = report.position.step;
  seconds_left_ = report.seconds_left;
  loss_.Add(report.result.loss);
  if (list.total > 0) first_list_.Add(list.share());
  if (document.total > 0) first_document_.Add(document.share());
  if (sums.text_tokens > 0) text_nats_.Add(report.text_nats_per_token);
  tokens_.Add(static_cast<double>(report.step_tokens));
  seconds_.Add(report.step_seconds);
  if (report.stage->distill > 0) index_loss_.Add(report.result.index_loss);
  if (report.result.index_quality.empty()) return;
  double worst = 1;
  for (const IndexQuality& quality : report.result.index_quality) {
    worst = std::min(worst, quality.top1_recall);
  }
  index_top1_.Add(worst);
}

std::string Progress::Line() const {
  std::string line = fmt::format("{}  step {}  loss {:.3f}  first", stage_, step_, loss_.now());
  if (first_list_.weight > 0) line += fmt::format(" list {:.3f}", first_list_.now());
  if (first_document_.weight > 0) line += fmt::format(" doc {:.3f}", first_document_.now());
  line += fmt::format("  text {:.2f} nats  {:.0f} tokens/s", text_nats_.now(),
                      seconds_.now() > 0 ? tokens_.now() / seconds_.now() : 0);
  if (index_loss_.weight > 0) line += fmt::format("  index KL {:.3f}", index_loss_.now());
  if (index_top1_.weight > 0) line += fmt::format(" top-1 {:.3f}", index_top1_.now());
  return line + fmt::format("  left {}", Duration(seconds_left_));
}

void Progress::Show(const StepReport& report) {
  const auto shown_at = shown_at_;
  const bool new_stage = stage_ != report.stage->name;
  if (new_stage && !stage_.empty()) Finish();
  Take(report);
  const auto now = std::chrono::steady_clock::now();
  shown_at_ = shown_at;
  if (!new_stage && now - shown_at < (terminal_ ? kTerminalInterval : kFileInterval)) return;
  shown_at_ = now;
  shown_step_ = step_;
  std::cerr << (terminal_ ? "\r\x1b[K" : "") << Line() << (terminal_ ? "" : "\n") << std::flush;
}

void Progress::Finish() {
  if (stage_.empty() || (!terminal_ && shown_step_ == step_)) return;
  std::cerr << (terminal_ ? "\r\x1b[K" : "") << Line() << '\n';
}

void NoteDamagedLog(const Trainer& trainer, const std::string& folder) {
  if (trainer.damaged_log_line() == 0) return;
  PrintNote(
      fmt::format("Line {} of {} was damaged, so the log was cut off before it; the run goes on "
                  "from its state all the same.",
                  trainer.damaged_log_line(), JoinPath(folder, kLogFileName)));
}

}  // namespace minke::train
