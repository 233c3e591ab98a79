#include "apps/cache_report.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "apps/common.h"
#include "simulator/capacity.h"

namespace minke {

Json CacheUseJson(const CacheUse& use) {
  Json json;
  json.Set("cached_tokens", use.cached_tokens);
  json.Set("ram_tokens", use.ram_tokens);
  json.Set("disk_tokens", use.disk_tokens);
  json.Set("replayed_tokens", use.replayed_tokens);
  json.Set("computed_tokens", use.computed_tokens);
  json.Set("tier", use.tier);
  json.Set("reason", use.reason);
  json.Set("first_difference", use.first_difference < 0 ? Json() : Json(use.first_difference));
  return json;
}

std::string CacheUseLine(const CacheUse& use) {
  const int64_t total = use.cached_tokens + use.replayed_tokens + use.computed_tokens;
  return fmt::format("{} of {} prompt tokens cached ({}), {} replayed, {} computed. {}",
                     use.cached_tokens, total, use.tier, use.replayed_tokens, use.computed_tokens,
                     ExplainCacheUse(use));
}

double ComputeSeconds(const GenerationResult& result) {
  return std::max(0.0,
                  result.prefill_seconds + result.decode_seconds - result.weights.wait_seconds);
}

namespace {

std::string WeightsUseText(const GenerationResult& result) {
  const WeightsUse& use = result.weights;
  const auto gigabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  const auto percent = [](int64_t part, int64_t other) {
    return part + other > 0 ? 100 * static_cast<double>(part) / static_cast<double>(part + other)
                            : 0.0;
  };
  return fmt::format(
      "minke: {:.2f} s computing, {:.2f} s waiting for the disk ({:.2f} GB/s); {:.3f} GB read{}\n"
      "minke: {:.2f} GB of dense weights and {} of {} experts fit into --weights-ram; experts: "
      "{:.0f} % of {} were there, {} of {} read ahead were needed; Engram pages: {:.0f} % of {}\n",
      ComputeSeconds(result), use.wait_seconds,
      use.wait_seconds > 0 ? gigabytes(use.waited_bytes) / use.wait_seconds : 0.0,
      gigabytes(use.read_bytes),
      use.direct ? "" : " through the page cache (this file system takes no direct I/O)",
      gigabytes(use.dense_bytes), use.expert_slots, use.expert_count,
      percent(use.expert_hits, use.expert_misses), use.expert_hits + use.expert_misses,
      use.expert_prefetch_hits, use.experts_prefetched, percent(use.engram_hits, use.engram_misses),
      use.engram_hits + use.engram_misses);
}

}  // namespace

void PrintAnswerStats(const Engine& engine, const GenerationResult& result,
                      const Session& session) {
  const auto rate = [](int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  const auto drawn = static_cast<int64_t>(result.ids.size());
  if (drawn == 0) {  // it ended while the prompt was read
    std::cerr << fmt::format(
        "minke: no token after {:.3f} s, {} threads, {} kernels; ended by: {}\n",
        result.prefill_seconds, engine.info().threads, engine.info().kernels,
        FinishReasonName(result.finish_reason));
    return;
  }
  std::cerr << fmt::format(
      "minke: first token after {:.3f} s ({:.1f} tokens/s of the prompt); answer {} tokens in "
      "{:.2f} s ({:.1f} tokens/s), {} threads, {} kernels\n",
      result.prefill_seconds,
      rate(result.prompt_tokens - result.cache.cached_tokens, result.prefill_seconds), drawn,
      result.decode_seconds, rate(drawn - 1, result.decode_seconds), engine.info().threads,
      engine.info().kernels);
  if (result.weights.streamed) std::cerr << WeightsUseText(result);
  std::cerr << "minke: " << CacheUseLine(result.cache) << '\n';
  const SessionMemory memory = session.memory();
  std::cerr << fmt::format(
      "minke: cache {:g} bytes per token, {} bytes in use; windows and other constant state {} "
      "bytes; ended by: {}{}\n",
      engine.info().kv_bytes_per_token, memory.used_bytes, memory.constant_bytes,
      FinishReasonName(result.finish_reason), result.context_full ? " (the context is full)" : "");
}

void NoteDiskWarning(const Engine& engine) {
  const CacheStatus status = engine.cache_status();
  if (!status.disk_warning.empty()) PrintNote(status.disk_warning);
}

Result<int64_t> ParseByteSize(std::string_view text, std::string_view what) {
  const Result<Capacity> capacity = ParseCapacity(text);
  if (!capacity || capacity->unit != CapacityUnit::kBytes || capacity->amount < 1) {
    return Fail(
        fmt::format("{} must be a size with its unit, above 0 and below 8192PiB, such as 512MiB "
                    "or 8GiB; found \"{}\".",
                    what, text.substr(0, 40)));
  }
  return capacity->amount;
}

}  // namespace minke
