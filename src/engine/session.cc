// A session's working state: where it comes from, how it grows, what it leaves in the cache.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/engine_impl.h"

namespace minke {

Session::Impl::Impl(Engine::Impl& engine_in) : engine(engine_in) {
  engine.sessions.push_back(this);
}

Session::Impl::~Impl() {
  Drop();
  std::erase(engine.sessions, this);
}

void Session::Impl::Drop() {
  state.reset();
  pin = ChainPin();
  engine.rows->Refund(std::exchange(charged_bytes, 0));
  tokens.clear();
  logits.clear();
  known_tokens = 0;
  reading_.reset();
}

Status Session::Impl::NewState() {
  Drop();
  std::unique_ptr<SequenceState> fresh = engine.loaded.model->NewSequence(*engine.rows);
  const int64_t bytes = fresh->constant_bytes();
  if (!engine.rows->Charge(bytes)) {
    if (!engine.MakeRoom(bytes) || !engine.rows->Charge(bytes)) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("A sequence needs {} bytes for its windows, but the memory for the "
                              "cache (--kv-ram, {} bytes) has no room for them; raise it.",
                              bytes, engine.info.cache_ram_bytes));
    }
  }
  charged_bytes = bytes;
  state = std::move(fresh);
  return {};
}

Status Session::Impl::Admit(int64_t length) {
  if (state->Reserve(length)) return {};
  const auto held = static_cast<int64_t>(state->blocks().size());
  const int64_t blocks = (length + kBlockTokens - 1) / kBlockTokens - held + 1;
  if (engine.MakeRoom(blocks * engine.rows->block_bytes()) && state->Reserve(length)) {
    return {};
  }
  const BlockPoolUsage usage = engine.rows->usage();
  return Fail(
      ErrorCode::kLimit,
      fmt::format("{} tokens need {} bytes of memory for their rows, but of the {} bytes of "
                  "--kv-ram {} are taken by what runs; shorten the prompt, "
                  "give --max-tokens or raise it.",
                  length, length * engine.rows->block_bytes() / kBlockTokens, usage.budget_bytes,
                  usage.used_bytes + usage.reserved_bytes));
}

bool Session::Impl::Restore(const ResumePlan& plan, const CacheMatch& match,
                            std::span<const int32_t> history, int64_t prompt_tokens) {
  const std::span<const std::byte> snapshot(match.snapshot ? match.snapshot.bytes() : nullptr,
                                            static_cast<size_t>(match.snapshot_bytes));
  const auto block_tokens = static_cast<int64_t>(match.blocks.size()) * kBlockTokens;
  if (plan.kind == ResumeKind::kSnapshot) {
    if (!state->RestoreSnapshot(snapshot, match.blocks)) return false;
    // A snapshot from within a prompt whose decoder had not begun is good for long prompts only.
    return !state->decoder_empty() ||
           DecoderStart(engine.options.prefill, prompt_tokens, plan.start, engine.window()) > 0;
  }
  if (plan.known_tokens > block_tokens) {
    if (!state->RestoreRows(snapshot, match.blocks)) return false;
  } else if (plan.known_tokens > 0) {
    state->AdoptRows(match.blocks, block_tokens);
  }
  state->StartReplay(plan.start, engine.loaded.model->EngramHistory(
                                     history.first(static_cast<size_t>(plan.start))));
  return true;
}

bool Session::Impl::Continues(std::span<const int32_t> history, int64_t prompt_tokens,
                              const CacheKey& tenant_key) const {
  const size_t length = tokens.size();
  return state != nullptr && tenant == tenant_key && length <= history.size() &&
         std::equal(tokens.begin(), tokens.end(), history.begin()) &&
         (length < history.size() || !logits.empty()) &&
         (!state->decoder_empty() ||
          DecoderStart(engine.options.prefill, prompt_tokens, static_cast<int64_t>(length),
                       engine.window()) > 0);
}

Result<std::optional<CacheUse>> Session::Impl::Resume(std::span<const int32_t> history,
                                                      int64_t prompt_tokens,
                                                      const CacheKey& tenant_key,
                                                      int64_t disk_blocks_max) {
  const auto total = static_cast<int64_t>(history.size());
  if (!reading_.has_value()) {
    std::erase(engine.sessions, this);
    engine.sessions.push_back(this);
    if (Continues(history, prompt_tokens, tenant_key)) {
      CacheUse report;
      report.cached_tokens = report.ram_tokens = static_cast<int64_t>(tokens.size());
      report.computed_tokens = total - report.cached_tokens;
      if (!tokens.empty()) report.tier = "session";
      known_tokens = report.cached_tokens;
      return std::optional<CacheUse>(std::move(report));
    }
    TRY_STATUS(NewState());
    tenant = tenant_key;
    if (engine.cache == nullptr) return std::optional<CacheUse>(CacheUse{.computed_tokens = total});
    reading_.emplace();
  }
  reading_->blocks_max = disk_blocks_max;
  const CacheChain chain{.tenant = tenant, .tokens = history, .extras = {}};
  const CacheMatch match = engine.cache->Lookup(chain, total - 1, &pin, &*reading_);
  if (match.more_on_disk) return std::optional<CacheUse>();
  reading_.reset();
  return std::optional<CacheUse>(TRY(TakeOver(match, history, prompt_tokens)));
}

Result<CacheUse> Session::Impl::TakeOver(const CacheMatch& match, std::span<const int32_t> history,
                                         int64_t prompt_tokens) {
  const auto total = static_cast<int64_t>(history.size());
  const auto block_tokens = static_cast<int64_t>(match.blocks.size()) * kBlockTokens;
  const PrefillMode mode = engine.options.prefill;
  ResumePlan plan = PlanResume(mode, total, block_tokens, match.snapshot_tokens, engine.window());
  // The open block of a snapshot needs a block of its own.
  const bool room = engine.MakeRoom(engine.rows->block_bytes());
  if (!room || !Restore(plan, match, history, prompt_tokens)) {
    // The snapshot is no use here: rows alone, or nothing.
    ChainPin keep = std::move(pin);
    const CacheKey tenant_key = tenant;
    TRY_STATUS(NewState());
    tenant = tenant_key;
    pin = std::move(keep);
    plan = PlanResume(mode, total, block_tokens, 0, engine.window());
    CHECK(Restore(plan, match, history, prompt_tokens));
  }
  known_tokens = plan.known_tokens;
  tokens.assign(history.begin(), history.begin() + plan.start);
  return ReportOf(mode, plan, total, block_tokens - match.disk_blocks * kBlockTokens,
                  match.snapshot_tier, match.reason, match.first_difference);
}

void Session::Impl::PublishBlocks() {
  if (engine.cache == nullptr || engine.options.cache.disk_read_only) return;
  const size_t full = tokens.size() / static_cast<size_t>(kBlockTokens);
  engine.cache->InsertBlocks({.tenant = tenant, .tokens = tokens, .extras = {}},
                             state->blocks().first(full), &pin);
}

void Session::Impl::PublishSnapshot() {
  if (engine.cache == nullptr || engine.options.cache.disk_read_only || tokens.empty()) return;
  PublishBlocks();
  BlockRef snapshot = engine.cache->AllocateSnapshot();
  if (!snapshot) return;
  state->WriteSnapshot(snapshot.bytes());
  engine.cache->InsertSnapshot({.tenant = tenant, .tokens = tokens, .extras = {}},
                               std::move(snapshot), state->snapshot_bytes());
}

}  // namespace minke
