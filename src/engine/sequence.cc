#include "engine/sequence.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace minke {

Status Sequence::Check(const Engine::Impl& engine, std::span<const int32_t> prompt,
                       const SequenceOptions& options) {
  if (options.max_tokens < -1) {
    return Fail(
        fmt::format("max_tokens must be 0 or more (-1: as many as the context holds), "
                    "found {}.",
                    options.max_tokens));
  }
  if (options.tenant.size() > kTenantBytesMax) {
    return Fail(ErrorCode::kLimit, fmt::format("A tenant's name may have {} bytes, found {}.",
                                               kTenantBytesMax, options.tenant.size()));
  }
  TRY_STATUS(Sampler::Check(options.sampling, engine.info.vocab_size));
  if (prompt.empty()) return Fail("The prompt is empty; it needs at least one token.");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= engine.info.vocab_size) {
      return Fail(
          fmt::format("Token {} of the prompt is id {}, but the vocabulary has ids 0 to {}.", i,
                      prompt[i], engine.info.vocab_size - 1));
    }
  }
  const int64_t limit = engine.info.context_tokens_max;
  if (static_cast<int64_t>(prompt.size()) >= limit) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The prompt has {} tokens, but the context holds {} and the answer "
                            "needs room too; shorten the prompt or raise the context limit.",
                            prompt.size(), limit));
  }
  return {};
}

Sequence::Sequence(Engine::Impl& engine, std::vector<int32_t> prompt, SequenceOptions options)
    : engine_(engine),
      options_(std::move(options)),
      tenant_key_(TenantKey(options_.tenant)),
      history_(std::move(prompt)),
      prompt_tokens_(static_cast<int64_t>(history_.size())) {}

// ---- memory ----

// Memory for what is to be read and for the rest of the answer, or for the next part of a long one.
Status Sequence::Admit(bool alone) {
  const auto total = static_cast<int64_t>(history_.size());
  const bool unlimited = options_.max_tokens < 0;
  const int64_t rest = unlimited
                           ? kAnswerTokensReserved
                           : std::min(std::max<int64_t>(0, options_.max_tokens - answer_tokens()),
                                      kAnswerTokensReserved);
  Status status = session_->Admit(std::min(total + rest, engine_.info.context_tokens_max));
  // An answer without a limit takes what there is.
  if (status || !alone || !unlimited) return status;
  return session_->Admit(total);
}

Status Sequence::CreateSampler() {
  sampler_.emplace(TRY(Sampler::Create(options_.sampling, engine_.info.vocab_size)));
  sampler_->AddPrompt(history().first(static_cast<size_t>(prompt_tokens_)));
  for (const int32_t id : answer()) sampler_->AddAnswer(id);
  return {};
}

Status Sequence::TakeUp(Session::Impl& session, bool alone, int64_t disk_blocks_max) {
  CHECK(phase_ == SequencePhase::kWaiting ||
        (phase_ == SequencePhase::kLoading && session_ == &session));
  session_ = &session;
  session.in_use = true;
  const auto set_aside = [&] {
    session.in_use = false;
    session_ = nullptr;
    sampler_.reset();
    phase_ = SequencePhase::kWaiting;
  };
  Result<std::optional<CacheUse>> resumed =
      session.Resume(history_, prompt_tokens_, tenant_key_, disk_blocks_max);
  if (resumed && !resumed->has_value()) {
    phase_ = SequencePhase::kLoading;
    return {};
  }
  Status status = resumed ? Admit(alone) : Status(tl::unexpected(resumed.error()));
  if (status) status = CreateSampler();
  if (!status) {
    set_aside();
    return status;
  }
  if (!std::exchange(was_taken_up_, true)) cache_use_ = **resumed;
  cuts_ = engine_.SnapshotCuts(history_, read_tokens(), session.known_tokens);
  cut_ = 0;
  decoder_start_ =
      DecoderStart(engine_.options.prefill, prompt_tokens_, read_tokens(), engine_.window());
  phase_ = rows_left() > 0 ? SequencePhase::kPrefill : SequencePhase::kDraw;
  return {};
}

void Sequence::SetAside() {
  if (session_ == nullptr) return;
  // Whatever was read is worth keeping, also after a stop or an error half way.
  if (session_->state != nullptr) {
    session_->state->ReleaseReservation();
    session_->PublishSnapshot();
  }
  session_->in_use = false;
  session_ = nullptr;
  sampler_.reset();
  phase_ = SequencePhase::kWaiting;
}

// ---- one step ----

StepRows Sequence::NextRows(int64_t rows_max) const {
  CHECK(phase_ == SequencePhase::kPrefill || phase_ == SequencePhase::kDecode);
  const int64_t start = read_tokens();
  int64_t count = std::min(rows_max, rows_left());
  if (cut_ < cuts_.size()) count = std::min(count, cuts_[cut_] - start);
  CHECK(count > 0);
  StepRows rows;
  rows.state = session_->state.get();
  rows.timeline = &session_->tokens;
  rows.tokens = history().subspan(static_cast<size_t>(start), static_cast<size_t>(count));
  rows.want_logits = count == rows_left();
  rows.decoder_from = std::clamp<int64_t>(decoder_start_ - start, 0, count);
  return rows;
}

void Sequence::Advance(int64_t count) {
  CHECK(count > 0 && session_->state->length() == read_tokens());
  const bool at_cut = cut_ < cuts_.size() && read_tokens() == cuts_[cut_];
  if (at_cut) ++cut_;
  const bool interval_due = phase_ == SequencePhase::kDecode &&
                            read_tokens() % engine_.options.cache.snapshot_interval_tokens == 0;
  if (at_cut || interval_due) session_->PublishSnapshot();
  if (rows_left() == 0) phase_ = SequencePhase::kDraw;
}

Result<DrawnToken> Sequence::Draw(std::span<const float> logits) {
  CHECK(phase_ == SequencePhase::kDraw);
  DrawnToken token;
  token.position = read_tokens();
  token.id = TRY(sampler_->Sample(logits, token.position));
  token.is_stop = IsStopToken(token.id);
  if (options_.sampling.logprobs >= 0) {
    token.logprobs = ComputeLogprobs(logits, token.id, options_.sampling.logprobs);
  }
  sampler_->AddAnswer(token.id);
  history_.push_back(token.id);
  phase_ = SequencePhase::kDecode;
  return token;
}

bool Sequence::IsStopToken(int32_t id) const {
  if (!options_.ignore_eos && id == engine_.loaded.model->config().eos_token_id) return true;
  return std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), id) !=
         options_.stop_tokens.end();
}

std::optional<FinishReason> Sequence::Ending(const DrawnToken& token) const {
  if (token.is_stop) return FinishReason::kStop;
  // The token drawn last has to be read, and one more to be drawn.
  const bool full = static_cast<int64_t>(history_.size()) >= engine_.info.context_tokens_max;
  if (has_max_tokens() || full) return FinishReason::kLength;
  return std::nullopt;
}

bool Sequence::Grow() {
  const int64_t length = read_tokens();
  return length < session_->state->room_tokens() ||
         engine_.rows->block_bytes() == kNoRowsBlockBytes ||
         session_->Admit(length + kAnswerTokensReserved).has_value() ||
         session_->Admit(length + 1).has_value();
}

}  // namespace minke
