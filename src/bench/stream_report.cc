#include "bench/stream_report.h"

#include <fmt/format.h>

namespace minke {
namespace {

double Share(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

double StreamReport::WaitedRate() const {
  return use.wait_seconds > 0 ? static_cast<double>(use.waited_bytes) / use.wait_seconds : 0;
}

double StreamReport::Ratio() const {
  return disk_rates.count() > 0 ? WaitedRate() / disk_rates.Median() : 0;
}

Json StreamReport::ToJson() const {
  Json json;
  json.Set("budget_bytes", use.budget_bytes);
  json.Set("dense_bytes", use.dense_bytes);
  json.Set("expert_slots", use.expert_slots);
  json.Set("expert_count", use.expert_count);
  json.Set("direct_io", use.direct);
  json.Set("step_seconds", step_seconds);
  json.Set("wait_seconds", use.wait_seconds);
  json.Set("read_bytes", use.read_bytes);
  json.Set("waited_bytes", use.waited_bytes);
  json.Set("waited_bytes_per_second", WaitedRate());
  json.Set("disk_bytes_per_second", SamplesJson(disk_rates));
  json.Set("ratio", Ratio());
  json.Set("expert_hits", use.expert_hits);
  json.Set("expert_misses", use.expert_misses);
  json.Set("experts_prefetched", use.experts_prefetched);
  json.Set("expert_prefetch_hits", use.expert_prefetch_hits);
  json.Set("engram_hits", use.engram_hits);
  json.Set("engram_misses", use.engram_misses);
  return json;
}

std::string StreamReport::ToText() const {
  const int64_t asked = use.expert_hits + use.expert_misses;
  return fmt::format(
      "weights: {:.3f} GB dense, {} of {} experts fit; {}\n"
      "experts asked for: {}, {:.0f} % there; read ahead: {}, {:.0f} % of them needed next\n"
      "waiting for the disk: {:.3f} s of {:.3f} s, at {}; the disk: {}; ratio {:.0f} %\n"
      "read: {:.3f} GB, {:.3f} GB of it while waiting\n",
      static_cast<double>(use.dense_bytes) / 1e9, use.expert_slots, use.expert_count,
      use.direct ? "direct I/O" : "through the page cache: this file system takes no direct I/O",
      asked, 100 * Share(use.expert_hits, asked), use.experts_prefetched,
      100 * Share(use.expert_prefetch_hits, use.experts_prefetched), use.wait_seconds, step_seconds,
      RateText(WaitedRate(), "B/s"), RateText(disk_rates.Median(), "B/s"), 100 * Ratio(),
      static_cast<double>(use.read_bytes) / 1e9, static_cast<double>(use.waited_bytes) / 1e9);
}

}  // namespace minke
