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
}

Status Session::Impl::NewState() {
  Drop();
  std::unique_ptr<SequenceState> fresh = engine.loaded.model->NewSequence(*engine.rows);
  const int64_t bytes = fresh->constant_bytes();
  if (!engine.rows->Charge(bytes)) {
    if (!engine.MakeRoom(bytes, this) || !engine.rows->Charge(bytes)) {
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
  if (engine.MakeRoom(blocks * engine.rows->block_bytes(), this) && state->Reserve(length)) {
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

Status Session::Impl::Append(std::span<const int32_t> ids, bool want_logits, int64_t decoder_from) {
  const Model& model = *engine.loaded.model;
  const auto count = static_cast<int64_t>(ids.size());
  logits.resize(want_logits ? static_cast<size_t>(model.config().vocab_size) : 0);
  const View<float> row(logits.data(), want_logits ? 1 : 0, model.config().vocab_size);
  const ForwardRows rows{.state = state.get(),
                         .tokens = ids,
                         .logits_from = want_logits ? count - 1 : count,
                         .decoder_from = decoder_from};
  Status status = model.Forward({&rows, 1}, row, engine.pool, engine.arena);
  if (!status) {
    logits.clear();
    return status;
  }
  state->Commit(count);
  tokens.insert(tokens.end(), ids.begin(), ids.end());
  return {};
}

Result<bool> Session::Impl::Restore(const ResumePlan& plan, const CacheMatch& match,
                                    std::span<const int32_t> prompt) {
  const std::span<const std::byte> snapshot(match.snapshot ? match.snapshot.bytes() : nullptr,
                                            static_cast<size_t>(match.snapshot_bytes));
  const auto block_tokens = static_cast<int64_t>(match.blocks.size()) * kBlockTokens;
  if (plan.kind == ResumeKind::kSnapshot) {
    if (!state->RestoreSnapshot(snapshot, match.blocks)) return false;
    const auto total = static_cast<int64_t>(prompt.size());
    // A snapshot from within a prompt whose decoder had not begun is good for long prompts only.
    return !state->decoder_empty() ||
           DecoderStart(engine.options.prefill, total, plan.start, engine.window()) > 0;
  }
  if (plan.known_tokens > block_tokens) {
    if (!state->RestoreRows(snapshot, match.blocks)) return false;
  } else if (plan.known_tokens > 0) {
    state->AdoptRows(match.blocks, block_tokens);
  }
  state->StartReplay(plan.start, engine.loaded.model->EngramHistory(
                                     prompt.first(static_cast<size_t>(plan.start))));
  return true;
}

Result<CacheUse> Session::Impl::Resume(std::span<const int32_t> prompt,
                                       const CacheKey& tenant_key) {
  const auto total = static_cast<int64_t>(prompt.size());
  const auto length = static_cast<int64_t>(tokens.size());
  const bool continues = state != nullptr && tenant == tenant_key && length <= total &&
                         std::equal(tokens.begin(), tokens.end(), prompt.begin()) &&
                         (length < total || !logits.empty()) &&
                         (!state->decoder_empty() ||
                          DecoderStart(engine.options.prefill, total, length, engine.window()) > 0);
  std::erase(engine.sessions, this);
  engine.sessions.push_back(this);
  if (continues) {
    CacheUse report;
    report.cached_tokens = report.ram_tokens = length;
    report.computed_tokens = total - length;
    if (length > 0) report.tier = "session";
    known_tokens = length;
    return report;
  }
  TRY_STATUS(NewState());
  tenant = tenant_key;
  if (engine.cache == nullptr) return CacheUse{.computed_tokens = total};

  const CacheChain chain{.tenant = tenant, .tokens = prompt, .extras = {}};
  CacheMatch match = engine.cache->Lookup(chain, total - 1, &pin);
  const auto block_tokens = static_cast<int64_t>(match.blocks.size()) * kBlockTokens;
  const PrefillMode mode = engine.options.prefill;
  ResumePlan plan = PlanResume(mode, total, block_tokens, match.snapshot_tokens, engine.window());
  // The open block of a snapshot needs a block of its own.
  const bool room = engine.MakeRoom(engine.rows->block_bytes(), this);
  if (!room || !TRY(Restore(plan, match, prompt))) {
    // The snapshot is no use here: rows alone, or nothing.
    ChainPin keep = std::move(pin);
    TRY_STATUS(NewState());
    pin = std::move(keep);
    plan = PlanResume(mode, total, block_tokens, 0, engine.window());
    CHECK(TRY(Restore(plan, match, prompt)));
  }
  known_tokens = plan.known_tokens;
  tokens.assign(prompt.begin(), prompt.begin() + plan.start);
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
