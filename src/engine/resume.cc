#include "engine/resume.h"

#include <algorithm>

#include <fmt/format.h>

namespace minke {

namespace {

constexpr std::string_view kKeepTheBeginning =
    "what changes from request to request, such as a date, belongs at the end.";

// Whether the lack of a snapshot explains more than what the cache found.
bool LacksSnapshot(const ResumePlan& plan, int64_t prompt_tokens, MissReason reason,
                   int64_t first_difference) {
  int64_t known = 0;  // tokens, those of an open block included
  if (reason == MissReason::kDiverged) known = first_difference;
  if (reason == MissReason::kBelowGranularity) known = prompt_tokens - 1;
  return reason == MissReason::kNone || plan.start + kCacheBlockTokens < known;
}

}  // namespace

ResumePlan PlanResume(PrefillMode mode, int64_t prompt_tokens, int64_t block_tokens,
                      int64_t snapshot_tokens, int64_t window) {
  const int64_t known = std::max(block_tokens, snapshot_tokens);
  ResumePlan plan{.kind = ResumeKind::kCold, .start = 0, .known_tokens = known};
  if (snapshot_tokens > 0) plan = {ResumeKind::kSnapshot, snapshot_tokens, known};
  // A beginning no longer than the window is run again as a whole, which is a cold run (6.3).
  if (mode == PrefillMode::kReplay && known > window && known - window > plan.start) {
    plan = {ResumeKind::kReplay, known - window, known};
  }
  // Rows of a cold replay-mode run would be read by tokens that a cold run computes anew.
  if (mode == PrefillMode::kReplay && plan.kind == ResumeKind::kCold) plan.known_tokens = 0;
  plan.known_tokens = std::min(plan.known_tokens, prompt_tokens);
  return plan;
}

CacheUse ReportOf(PrefillMode mode, const ResumePlan& plan, int64_t prompt_tokens,
                  int64_t ram_block_tokens, CacheTier snapshot_tier, MissReason reason,
                  int64_t first_difference) {
  CacheUse report;
  report.cached_tokens = plan.start;
  report.replayed_tokens = std::max<int64_t>(0, plan.known_tokens - plan.start);
  report.computed_tokens = prompt_tokens - report.cached_tokens - report.replayed_tokens;
  report.ram_tokens = std::min(plan.start, ram_block_tokens);
  // The open end of a snapshot comes with it.
  const bool tail_in_ram = plan.kind == ResumeKind::kSnapshot && snapshot_tier == CacheTier::kRam &&
                           plan.start - ram_block_tokens < kCacheBlockTokens;
  if (tail_in_ram) report.ram_tokens = plan.start;
  report.disk_tokens = plan.start - report.ram_tokens;
  if (plan.start > 0) report.tier = CacheTierName(CacheTier::kRam);
  if (report.disk_tokens > 0 ||
      (plan.kind == ResumeKind::kSnapshot && snapshot_tier == CacheTier::kDisk)) {
    report.tier = CacheTierName(CacheTier::kDisk);
  }
  // Rows were there, and only the working state was missing.
  const bool rows_only = mode == PrefillMode::kExact && report.replayed_tokens > 0;
  if (rows_only && LacksSnapshot(plan, prompt_tokens, reason, first_difference)) {
    reason = MissReason::kNoSnapshot;
  }
  report.reason = MissReasonName(reason);
  report.first_difference = first_difference;
  return report;
}

int64_t DecoderStart(PrefillMode mode, int64_t prompt_tokens, int64_t length, int64_t window) {
  if (mode == PrefillMode::kExact) return 0;
  const int64_t start = prompt_tokens - window;
  // Window rows that the decoder has already are kept where they reach up to the new ones.
  return start <= length ? 0 : start;
}

const char* PrefillModeName(PrefillMode mode) {
  return mode == PrefillMode::kExact ? "exact" : "replay";
}

Result<PrefillMode> ParsePrefillMode(std::string_view name) {
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kReplay}) {
    if (name == PrefillModeName(mode)) return mode;
  }
  return Fail(fmt::format("prefill must be exact or replay, found \"{}\".", name));
}

std::string ExplainCacheUse(const CacheUse& report) {
  const std::string at =
      report.first_difference >= 0 ? fmt::format(" (token {})", report.first_difference) : "";
  if (report.reason == "cold") return "Nothing that begins like this prompt was seen before.";
  if (report.reason == "diverged") {
    return fmt::format("A known prompt has the same beginning and differs from token {} on; {}",
                       report.first_difference, kKeepTheBeginning);
  }
  if (report.reason == "evicted") {
    return "More was known and had to go for something newer; raise --kv-ram, or add --kv-disk.";
  }
  if (report.reason == "other_tenant") {
    return "The same beginning is known to another tenant; tenants share nothing.";
  }
  if (report.reason == "other_model") {
    return "The same beginning is known under another model, version, numeric or prefill mode.";
  }
  if (report.reason == "below_granularity") {
    return fmt::format("The known part ends inside a block of {} tokens that has no snapshot{}.",
                       kCacheBlockTokens, at);
  }
  if (report.reason == "damaged") {
    return "A record on disk could not be trusted and is never used; what follows it is computed.";
  }
  if (report.reason == "no_snapshot") {
    if (report.first_difference >= 0) {
      return fmt::format(
          "Exact prefill continues from snapshots only, and there is none near the end of the {} "
          "tokens that are known; an answer leaves one for the next such prompt, if "
          "--snapshot-budget has room. From token {} on a known prompt differs; {}",
          report.first_difference, report.first_difference, kKeepTheBeginning);
    }
    return "Rows are known further than the last snapshot, and exact prefill continues from "
           "snapshots only; raise --snapshot-budget, or use --prefill replay.";
  }
  if (report.reason == "no_room") {
    return "More is known on disk than memory has room for; raise --kv-ram.";
  }
  return "Everything known about this prompt was used.";
}

}  // namespace minke
