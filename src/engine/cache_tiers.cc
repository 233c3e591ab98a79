// The engine's cache: opening its tiers, making room, where snapshots are taken, what it reports.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/fingerprint.h"

namespace minke {

namespace {

constexpr int64_t kRamBytesDefaultMax = int64_t{8} << 30;
constexpr int64_t kRamShareDefault = 4;       // a quarter of the physical memory
constexpr int64_t kSnapshotShareDefault = 8;  // an eighth of the memory for rows
// Ends of messages that get a snapshot in one prompt: those that a follow-up may go back to.
constexpr size_t kMessageSnapshots = 4;
// A snapshot so close before another one saves nothing. More would cost an edited last turn its
// boundary: a question of one token begins three before the end of its prompt.
constexpr int64_t kSnapshotGapTokens = 3;

Status CheckCacheOptions(const CacheOptions& options) {
  const auto negative = [](const char* flag, int64_t value) {
    return Fail(fmt::format("{} must be 0 (the default) or more bytes, found {}.", flag, value));
  };
  if (options.ram_bytes < 0) return negative("--kv-ram", options.ram_bytes);
  if (options.snapshot_bytes < 0) return negative("--snapshot-budget", options.snapshot_bytes);
  if (options.disk_bytes < 0) return negative("--kv-disk-budget", options.disk_bytes);
  if (options.snapshot_interval_tokens < kSnapshotIntervalTokensMin) {
    return Fail(fmt::format("The snapshot interval must be at least {} tokens, found {}.",
                            kSnapshotIntervalTokensMin, options.snapshot_interval_tokens));
  }
  return {};
}

}  // namespace

Status Engine::Impl::OpenCache() {
  TRY_STATUS(CheckCacheOptions(options.cache));
  const Model& model = *loaded.model;
  if (options.prefill == PrefillMode::kReplay && !model.replay_obstacle().empty()) {
    return Fail(fmt::format("--prefill replay is not possible: {}. Use --prefill exact.",
                            model.replay_obstacle()));
  }
  const StateLayout layout(model.config(), model.numerics());
  info.prefill = options.prefill;
  info.cache_ram_bytes = options.cache.ram_bytes;
  if (info.cache_ram_bytes == 0) {
    info.cache_ram_bytes = kRamBytesDefaultMax;
    const auto share = static_cast<int64_t>(info.memory_bytes) / kRamShareDefault;
    if (share > 0) info.cache_ram_bytes = std::min(info.cache_ram_bytes, share);
  }
  info.snapshot_bytes_max = SequenceState::SnapshotBytesMax(layout);
  info.cache_snapshot_bytes = options.cache.snapshot_bytes > 0
                                  ? options.cache.snapshot_bytes
                                  : info.cache_ram_bytes / kSnapshotShareDefault;
  const bool has_rows = layout.block_bytes > 0;
  rows = std::make_unique<BlockPool>(has_rows ? layout.block_bytes : kNoRowsBlockBytes,
                                     info.cache_ram_bytes);
  snapshots = std::make_unique<BlockPool>(info.snapshot_bytes_max, info.cache_snapshot_bytes);
  // Stale keys depend on how a prompt was cut, so nothing of them may be shared; without rows
  // there is nothing to share.
  if (!has_rows || options.reference_artifacts) {
    if (options.cache.disk_dir.empty()) return {};
    return Fail(options.reference_artifacts
                    ? "--kv-disk cannot be used with --reference-artifacts."
                    : "--kv-disk is of no use with this model: it has no compressed rows to keep.");
  }
  CacheKey fingerprint;
  if (!options.cache.disk_dir.empty()) {
    fingerprint = TRY(ModelFingerprint(options, model));
    StoreOptions store_options;
    store_options.directory = options.cache.disk_dir;
    store_options.fingerprint = fingerprint;
    store_options.budget_bytes = options.cache.disk_bytes;
    store_options.snapshot_budget_bytes =
        std::min(options.cache.disk_bytes / 2,
                 std::max(info.cache_snapshot_bytes, options.cache.disk_bytes / 8));
    store_options.write_bytes_per_hour = options.cache.disk_write_bytes_per_hour;
    store_options.read_only = options.cache.disk_read_only;
    store = TRY(BlockStore::Open(store_options));
  }
  cache = std::make_unique<PrefixCache>(fingerprint, *rows, *snapshots, store.get());
  return {};
}

bool Engine::Impl::MakeRoom(int64_t bytes) {
  const auto has_room = [&] {
    if (cache != nullptr) return cache->MakeRoom(bytes);
    const BlockPoolUsage usage = rows->usage();
    return usage.budget_bytes - usage.used_bytes - usage.reserved_bytes >= bytes;
  };
  if (bytes > info.cache_ram_bytes) return false;
  if (has_room()) return true;
  for (Session::Impl* session : sessions) {
    if (session->in_use || session->state == nullptr) continue;
    session->Drop();
    if (has_room()) return true;
  }
  return false;
}

std::vector<int64_t> Engine::Impl::SnapshotCuts(std::span<const int32_t> prompt, int64_t start,
                                                int64_t known_tokens) const {
  if (cache == nullptr || options.cache.disk_read_only) return {};
  const auto total = static_cast<int64_t>(prompt.size());
  std::vector<int64_t> cuts;
  for (int64_t i = total - 1; i > start && cuts.size() < kMessageSnapshots; --i) {
    const int32_t id = prompt[static_cast<size_t>(i)];
    const bool starts =
        std::find(message_starts.begin(), message_starts.end(), id) != message_starts.end();
    if (starts && i - start >= kSnapshotGapTokens) cuts.push_back(i);
  }
  const int64_t interval = options.cache.snapshot_interval_tokens;
  for (int64_t at = (start / interval + 1) * interval; at < total; at += interval) {
    cuts.push_back(at);
  }
  // Where a known chain was left: two prompts have this beginning, so a third may come (1.8).
  if (known_tokens > start) cuts.push_back(known_tokens);
  // The end of the input, less the token whose logits an exact repeat needs.
  if (total - 1 > start) cuts.push_back(total - 1);
  std::sort(cuts.begin(), cuts.end());
  std::vector<int64_t> kept;  // from the end on
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    if (*cut >= total) continue;
    if (kept.empty() || kept.back() - *cut >= kSnapshotGapTokens) kept.push_back(*cut);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

CacheStatus Engine::cache_status() const {
  CacheStatus status;
  status.weights = WeightsUseOf(*impl_->loaded.model);
  status.ram_used_bytes = impl_->rows->usage().used_bytes;
  status.snapshot_used_bytes = impl_->snapshots->usage().used_bytes;
  if (impl_->cache != nullptr) {
    const PrefixCacheStats stats = impl_->cache->Stats();
    status.ram_blocks = stats.blocks;
    status.ram_snapshots = stats.snapshots;
    status.blocks_evicted = stats.blocks_evicted;
  }
  if (impl_->store != nullptr) {
    const StoreStats stats = impl_->store->Stats();
    status.disk = true;
    status.disk_used_bytes = stats.disk_bytes;
    status.disk_bytes_written = stats.bytes_written;
    status.disk_bytes_read = stats.bytes_read;
    status.disk_records_damaged = stats.records_damaged;
    status.disk_warning = stats.warning;
  }
  return status;
}

Result<CacheUse> Engine::ExplainCache(std::span<const int32_t> prompt,
                                      std::string_view tenant) const {
  if (prompt.empty()) return Fail("The prompt is empty; it needs at least one token.");
  const auto total = static_cast<int64_t>(prompt.size());
  if (impl_->cache == nullptr) return CacheUse{.computed_tokens = total};
  const CacheExplanation found = impl_->cache->Explain(
      {.tenant = TenantKey(tenant), .tokens = prompt, .extras = {}}, total - 1);
  const ResumePlan plan =
      PlanResume(impl_->options.prefill, total, found.ram_tokens + found.disk_tokens,
                 found.snapshot_tokens, impl_->window());
  return ReportOf(impl_->options.prefill, plan, total, found.ram_tokens, found.snapshot_tier,
                  found.reason, found.first_difference);
}

void Engine::FlushCache() const {
  if (impl_->store != nullptr) impl_->store->Flush();
}

void Engine::DropCacheMemory() const {
  if (impl_->cache != nullptr) impl_->cache->DropMemory();
}

}  // namespace minke
