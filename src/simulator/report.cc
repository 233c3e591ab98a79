#include "simulator/report.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace minke {
namespace {

constexpr size_t kGapTablesMax = 4;  // more runs than this and the table of all is enough

using Row = std::vector<std::string>;

// Columns as wide as their widest cell; the first `left` ones begin at the left.
std::string TableText(std::span<const Row> rows, size_t left) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += i < left ? fmt::format("{:<{}}", row[i], widths[i])
                       : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string Percent(double share) {
  return fmt::format("{:.2f} %", 100 * share);
}

std::string DurationText(int64_t microseconds) {
  const int64_t seconds = microseconds / kMicrosecondsPerSecond;
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string SecondsText(int64_t tokens, double tokens_per_second) {
  return fmt::format("{:.1f} s", static_cast<double>(tokens) / tokens_per_second);
}

std::string BlocksText(const SimulationRun& run) {
  const int64_t blocks = run.result.capacity_blocks;
  return blocks == kUnlimitedBlocks ? "unlimited" : CountText(blocks);
}

Json GapJson(const char* name, const ReuseCount& count) {
  Json json;
  json.Set("gap", name);
  json.Set("hit_blocks", count.hit_blocks);
  json.Set("hit_tokens", count.hit_tokens);
  json.Set("recomputed_blocks", count.recomputed_blocks);
  json.Set("recomputed_tokens", count.recomputed_tokens);
  return json;
}

std::string SummaryText(const TraceSummary& trace, const SimulationResult& unlimited) {
  const std::string files = trace.files == 1 ? "" : fmt::format(" in {} files", trace.files);
  std::string text = fmt::format(
      "{}: {} requests{} over {}\n"
      "Input {} tokens (half of the requests have at most {}), output {} tokens\n"
      "{} uses of {} blocks of {} tokens; an unlimited cache hits {} of the blocks, {} of the "
      "tokens\n",
      trace.name, CountText(trace.requests), files, DurationText(trace.duration_us),
      CountText(trace.input_tokens), CountText(trace.input_tokens_p50),
      CountText(trace.output_tokens), CountText(trace.block_uses),
      CountText(trace.different_blocks), trace.block_tokens, Percent(unlimited.BlockHitRate()),
      Percent(unlimited.TokenHitRate()));
  text += trace.timed_requests == 0
              ? "No request says how long it ran: its blocks are pinned while they arrive.\n"
              : fmt::format(
                    "Blocks are pinned while their request runs; {} requests say how long "
                    "they ran.\n",
                    CountText(trace.timed_requests));
  return text;
}

Json SummaryJson(const TraceSummary& trace, const SimulationResult& unlimited) {
  Json json;
  json.Set("name", trace.name);
  json.Set("files", trace.files);
  json.Set("requests", trace.requests);
  json.Set("timed_requests", trace.timed_requests);
  json.Set("duration_seconds",
           static_cast<double>(trace.duration_us) / static_cast<double>(kMicrosecondsPerSecond));
  json.Set("block_tokens", trace.block_tokens);
  json.Set("blocks", trace.block_uses);
  json.Set("different_blocks", trace.different_blocks);
  json.Set("input_tokens", trace.input_tokens);
  json.Set("input_tokens_p50", trace.input_tokens_p50);
  json.Set("output_tokens", trace.output_tokens);
  json.Set("unlimited_block_hit_rate", unlimited.BlockHitRate());
  json.Set("unlimited_token_hit_rate", unlimited.TokenHitRate());
  return json;
}

}  // namespace

TraceSummary Summarize(const Trace& trace, const std::string& name, int64_t files) {
  TraceSummary summary;
  summary.name = name;
  summary.files = files;
  summary.requests = static_cast<int64_t>(trace.requests.size());
  summary.timed_requests = trace.timed_requests;
  summary.block_tokens = trace.block_tokens;
  summary.block_uses = static_cast<int64_t>(trace.uses.size());
  summary.different_blocks = static_cast<int64_t>(trace.parents.size());
  summary.input_tokens = trace.input_tokens;
  summary.output_tokens = trace.output_tokens;
  if (trace.requests.empty()) return summary;
  summary.duration_us = trace.requests.back().arrival_us - trace.requests.front().arrival_us;
  std::vector<int64_t> inputs;
  inputs.reserve(trace.requests.size());
  for (const TraceRequest& request : trace.requests) inputs.push_back(request.input_tokens);
  summary.input_tokens_p50 = Percentile(std::move(inputs), 0.5);
  return summary;
}

bool SimulationReport::OneTokenSize() const {
  return std::all_of(runs.begin(), runs.end(), [this](const SimulationRun& run) {
    return run.bytes_per_token == runs.front().bytes_per_token;
  });
}

std::string SimulationReport::ToText() const {
  const bool one_size = OneTokenSize();
  const bool timed = prefill_tokens_per_second > 0;
  std::vector<Row> rows;
  rows.push_back({"policy", "capacity", "blocks"});
  if (!one_size) rows.back().emplace_back("B/token");
  for (const char* heading : {"hit blocks", "hit tokens", "computed", "recomputed", "evictions"}) {
    rows.back().emplace_back(heading);
  }
  if (timed) rows.back().insert(rows.back().end(), {"compute", "recompute"});
  for (const SimulationRun& run : runs) {
    const SimulationResult& result = run.result;
    Row row = {result.policy, run.capacity.text, BlocksText(run)};
    if (!one_size) row.push_back(CountText(run.bytes_per_token));
    row.push_back(Percent(result.BlockHitRate()));
    row.push_back(Percent(result.TokenHitRate()));
    row.push_back(CountText(result.ComputedTokens()));
    row.push_back(CountText(result.reused.recomputed_tokens));
    row.push_back(CountText(result.evicted_blocks));
    if (timed) {
      row.push_back(SecondsText(result.ComputedTokens(), prefill_tokens_per_second));
      row.push_back(SecondsText(result.reused.recomputed_tokens, prefill_tokens_per_second));
    }
    rows.push_back(std::move(row));
  }
  std::string text = SummaryText(trace, unlimited) + '\n' + TableText(rows, 2) +
                     "Computed and recomputed are tokens; recomputed ones had been evicted.\n";
  if (runs.size() > kGapTablesMax) return text;
  for (const SimulationRun& run : runs) text += '\n' + GapText(run);
  return text;
}

std::string SimulationReport::GapText(const SimulationRun& run) const {
  const SimulationResult& result = run.result;
  std::vector<Row> rows;
  rows.push_back({"last used", "hit tokens", "share", "computed tokens", "share"});
  const auto add = [&](const char* name, int64_t hit, int64_t computed) {
    rows.push_back({name, CountText(hit), Percent(Share(hit, result.reused.hit_tokens)),
                    CountText(computed), Percent(Share(computed, result.ComputedTokens()))});
  };
  for (size_t i = 0; i < kReuseGaps.size(); ++i) {
    add(kReuseGaps[i].name, result.gaps[i].hit_tokens, result.gaps[i].recomputed_tokens);
  }
  add("never", 0, result.new_tokens);
  add("in no block", 0, result.loose_tokens);
  std::string text = fmt::format("{}, {}", result.policy, run.capacity.text);
  if (!OneTokenSize()) text += fmt::format(", {} B/token", run.bytes_per_token);
  text += fmt::format(": half of the requests compute at most {} tokens, 90 % at most {}.",
                      CountText(result.computed_tokens_p50), CountText(result.computed_tokens_p90));
  if (result.refused_blocks > 0) {
    text += fmt::format(" {} blocks were not kept, because all others were pinned.",
                        CountText(result.refused_blocks));
  }
  return text + '\n' + TableText(rows, 1);
}

Json SimulationReport::RunJson(const SimulationRun& run) const {
  const SimulationResult& result = run.result;
  const bool limited = result.capacity_blocks != kUnlimitedBlocks;
  Json json;
  json.Set("policy", result.policy);
  json.Set("capacity", run.capacity.text);
  json.Set("capacity_blocks", limited ? Json(result.capacity_blocks) : Json());
  json.Set("bytes_per_token", run.bytes_per_token);
  json.Set("block_hit_rate", result.BlockHitRate());
  json.Set("token_hit_rate", result.TokenHitRate());
  json.Set("hit_blocks", result.reused.hit_blocks);
  json.Set("hit_tokens", result.reused.hit_tokens);
  json.Set("computed_tokens", result.ComputedTokens());
  json.Set("recomputed_blocks", result.reused.recomputed_blocks);
  json.Set("recomputed_tokens", result.reused.recomputed_tokens);
  json.Set("new_blocks", result.new_blocks);
  json.Set("new_tokens", result.new_tokens);
  json.Set("loose_tokens", result.loose_tokens);
  json.Set("computed_tokens_p50", result.computed_tokens_p50);
  json.Set("computed_tokens_p90", result.computed_tokens_p90);
  json.Set("evicted_blocks", result.evicted_blocks);
  json.Set("refused_blocks", result.refused_blocks);
  json.Set("peak_blocks", result.peak_blocks);
  if (prefill_tokens_per_second > 0) {
    json.Set("compute_seconds",
             static_cast<double>(result.ComputedTokens()) / prefill_tokens_per_second);
    json.Set("recompute_seconds",
             static_cast<double>(result.reused.recomputed_tokens) / prefill_tokens_per_second);
  }
  JsonArray gaps;
  for (size_t i = 0; i < kReuseGaps.size(); ++i) {
    gaps.push_back(GapJson(kReuseGaps[i].name, result.gaps[i]));
  }
  json.Set("gaps", std::move(gaps));
  return json;
}

Json SimulationReport::ToJson() const {
  Json json;
  json.Set("trace", SummaryJson(trace, unlimited));
  if (runs.size() == 1) {
    const Json run = RunJson(runs.front());
    for (const JsonMember& member : run.as_object()) json.Set(member.first, member.second);
  }
  JsonArray array;
  for (const SimulationRun& run : runs) array.push_back(RunJson(run));
  json.Set("runs", std::move(array));
  return json;
}

}  // namespace minke
