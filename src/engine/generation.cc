// One answer: reads the prompt in chunks, then draws token after token (engine.h).
#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/sampler.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace minke {
namespace {

using Clock = std::chrono::steady_clock;

// Memory that is set aside for an answer at a time.
constexpr int64_t kAnswerTokensReserved = 4096;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status CheckStopStrings(const std::vector<std::string>& stops) {
  if (stops.size() > kStopStringsMax) {
    return Fail(ErrorCode::kLimit, fmt::format("At most {} stop strings are allowed, found {}.",
                                               kStopStringsMax, stops.size()));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return Fail("A stop string must not be empty: it would match at once.");
    if (stop.size() > kStopStringBytesMax) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("A stop string may have {} bytes, found one of {}.",
                              kStopStringBytesMax, stop.size()));
    }
    if (ValidUtf8Prefix(stop) != stop.size()) return Fail("A stop string must be valid UTF-8.");
  }
  return {};
}

}  // namespace

// The state of one Generate() call.
class Generation {
 public:
  Generation(Engine::Impl& engine, Session::Impl& session, const GenerationOptions& options,
             Sampler sampler)
      : engine_(engine),
        session_(session),
        options_(options),
        sampler_(std::move(sampler)),
        detokenizer_(engine.loaded.tokenizer),
        stops_(options.stop_strings) {}

  Result<GenerationResult> Run(std::span<const int32_t> prompt);

 private:
  Status CheckPrompt(std::span<const int32_t> prompt) const;
  // False if the caller cancelled.
  Result<bool> Prefill(std::span<const int32_t> prompt);
  Status Decode();
  Status Answer(std::span<const int32_t> prompt);
  Status Admit(int64_t total);
  // Draws a token, shows it, and says whether the answer goes on.
  Result<bool> Step();
  void Show(TokenEvent event, bool is_stop_token);
  void Emit(TokenEvent event, const std::string& text);
  void FlushText();
  bool IsStopToken(int32_t id) const;
  bool Cancelled() const {
    return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
  }
  int64_t length() const { return static_cast<int64_t>(session_.tokens.size()); }

  Engine::Impl& engine_;
  Session::Impl& session_;
  const GenerationOptions& options_;
  Sampler sampler_;
  StreamingDetokenizer detokenizer_;
  StopMatcher stops_;
  bool in_reasoning_ = false;
  GenerationResult result_;
};

Status Generation::CheckPrompt(std::span<const int32_t> prompt) const {
  if (prompt.empty()) return Fail("The prompt is empty; it needs at least one token.");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= engine_.info.vocab_size) {
      return Fail(
          fmt::format("Token {} of the prompt is id {}, but the vocabulary has ids 0 to {}.", i,
                      prompt[i], engine_.info.vocab_size - 1));
    }
  }
  const int64_t limit = engine_.info.context_tokens_max;
  if (static_cast<int64_t>(prompt.size()) >= limit) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The prompt has {} tokens, but the context holds {} and the answer "
                            "needs room too; shorten the prompt or raise the context limit.",
                            prompt.size(), limit));
  }
  return {};
}

// Memory for the prompt and for the answer, or for the first part of a long one. An answer without
// a limit takes what there is.
Status Generation::Admit(int64_t total) {
  const bool unlimited = options_.max_tokens < 0;
  const int64_t answer =
      unlimited ? kAnswerTokensReserved : std::min(options_.max_tokens, kAnswerTokensReserved);
  Status status = session_.Admit(std::min(total + answer, engine_.info.context_tokens_max));
  if (status || !unlimited) return status;
  return session_.Admit(total);
}

Result<bool> Generation::Prefill(std::span<const int32_t> prompt) {
  const auto total = static_cast<int64_t>(prompt.size());
  result_.cache = TRY(session_.Resume(prompt, TenantKey(options_.tenant)));
  TRY_STATUS(Admit(total));
  const std::vector<int64_t> cuts = engine_.SnapshotCuts(prompt, length(), session_.known_tokens);
  const int64_t decoder_start =
      DecoderStart(engine_.options.prefill, total, length(), engine_.window());
  size_t cut = 0;
  while (length() < total) {
    if (Cancelled()) return false;
    int64_t end = std::min(length() + engine_.options.prefill_chunk_tokens, total);
    if (cut < cuts.size()) end = std::min(end, cuts[cut]);
    const int64_t count = end - length();
    TRY_STATUS(
        session_.Append(prompt.subspan(static_cast<size_t>(length()), static_cast<size_t>(count)),
                        end == total, std::clamp<int64_t>(decoder_start - length(), 0, count)));
    if (cut < cuts.size() && end == cuts[cut]) {
      session_.PublishSnapshot();
      ++cut;
    }
    if (options_.prefill_progress) options_.prefill_progress(length(), total);
  }
  return !Cancelled();
}

bool Generation::IsStopToken(int32_t id) const {
  if (!options_.ignore_eos && id == engine_.loaded.model->config().eos_token_id) return true;
  return std::find(options_.stop_tokens.begin(), options_.stop_tokens.end(), id) !=
         options_.stop_tokens.end();
}

void Generation::Emit(TokenEvent event, const std::string& text) {
  event.text = text;
  event.in_reasoning = in_reasoning_;
  result_.text += text;
  const bool is_think_end = event.id != kNoToken && event.id == engine_.think_end;
  if (!is_think_end || !in_reasoning_) (in_reasoning_ ? result_.reasoning : result_.answer) += text;
  if (options_.on_token) options_.on_token(event);
}

void Generation::FlushText() {
  std::string text = detokenizer_.Flush();
  if (!in_reasoning_) {
    text = stops_.Push(text);
    if (!stops_.matched()) text += stops_.Flush();
  }
  if (!text.empty()) Emit({.position = length()}, text);
}

void Generation::Show(TokenEvent event, bool is_stop_token) {
  event.is_control = engine_.loaded.tokenizer.IsControl(event.id);
  if (is_stop_token) {
    FlushText();
    Emit(event, {});
    return;
  }
  std::string text = detokenizer_.Push(event.id);
  // Reasoning may quote a stop string without ending the answer (serving.md 1.4).
  if (!in_reasoning_) text = stops_.Push(text);
  Emit(event, text);
  if (in_reasoning_ && event.id == engine_.think_end) {
    in_reasoning_ = false;
    result_.reasoning_tokens = static_cast<int64_t>(result_.ids.size());
  }
}

Result<bool> Generation::Step() {
  const std::span<const float> logits = session_.logits;
  const int32_t id = TRY(sampler_.Sample(logits, length()));
  sampler_.AddAnswer(id);
  result_.ids.push_back(id);

  TokenEvent event{.id = id, .position = length(), .logits = logits};
  Logprobs logprobs;
  if (options_.sampling.logprobs >= 0) {
    logprobs = ComputeLogprobs(logits, id, options_.sampling.logprobs);
    event.logprob = &logprobs.chosen;
    event.alternatives = logprobs.best;
  }
  const bool is_stop_token = IsStopToken(id);
  Show(event, is_stop_token);
  if (is_stop_token) {
    result_.finish_reason = FinishReason::kStop;
    return false;
  }
  if (stops_.matched()) {
    result_.finish_reason = FinishReason::kStopString;
    result_.stop_string = stops_.match();
    return false;
  }
  if (Cancelled()) {
    result_.finish_reason = FinishReason::kCancelled;
    return false;
  }
  const auto drawn = static_cast<int64_t>(result_.ids.size());
  const int64_t context_room = engine_.info.context_tokens_max - length() - 1;
  const bool enough = options_.max_tokens >= 0 && drawn >= options_.max_tokens;
  const bool fits = length() < session_.state->room_tokens() ||
                    engine_.rows->block_bytes() == kNoRowsBlockBytes ||
                    session_.Admit(length() + kAnswerTokensReserved).has_value() ||
                    session_.Admit(length() + 1).has_value();
  if (!enough && context_room > 0 && fits) return true;
  result_.finish_reason = FinishReason::kLength;
  result_.context_full = !enough;
  return false;
}

Status Generation::Decode() {
  Clock::time_point first_drawn;
  while (true) {
    const bool goes_on = TRY(Step());
    if (result_.ids.size() == 1) first_drawn = Clock::now();
    if (!goes_on) break;
    const int32_t id = result_.ids.back();
    TRY_STATUS(session_.Append({&id, 1}, true));
    if (length() % engine_.options.cache.snapshot_interval_tokens == 0) session_.PublishSnapshot();
  }
  if (!stops_.matched()) FlushText();
  result_.decode_seconds = SecondsSince(first_drawn);
  return {};
}

Status Generation::Answer(std::span<const int32_t> prompt) {
  const Clock::time_point start = Clock::now();
  const bool whole = TRY(Prefill(prompt));
  result_.prefill_seconds = SecondsSince(start);
  if (!whole) {
    result_.finish_reason = FinishReason::kCancelled;
    return {};
  }
  return options_.max_tokens == 0 ? Status() : Decode();
}

Result<GenerationResult> Generation::Run(std::span<const int32_t> prompt) {
  TRY_STATUS(CheckPrompt(prompt));
  result_.prompt_tokens = static_cast<int64_t>(prompt.size());
  in_reasoning_ = engine_.think_start == prompt.back();
  sampler_.AddPrompt(prompt);
  const Status status = Answer(prompt);
  // Whatever was read is worth keeping, also after a stop or an error half way.
  if (session_.state != nullptr) {
    session_.state->ReleaseReservation();
    session_.PublishSnapshot();
  }
  if (!status) return tl::unexpected(status.error());
  if (in_reasoning_) result_.reasoning_tokens = static_cast<int64_t>(result_.ids.size());
  return std::move(result_);
}

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Result<GenerationResult> Engine::Generate(Session& session, std::span<const int32_t> prompt,
                                          const GenerationOptions& options) const {
  CHECK(&session.impl_->engine == impl_.get(), "a session of another engine");
  if (options.max_tokens < -1) {
    return Fail(
        fmt::format("max_tokens must be 0 or more (-1: as many as the context holds), "
                    "found {}.",
                    options.max_tokens));
  }
  TRY_STATUS(CheckStopStrings(options.stop_strings));
  if (options.tenant.size() > kTenantBytesMax) {
    return Fail(ErrorCode::kLimit, fmt::format("A tenant's name may have {} bytes, found {}.",
                                               kTenantBytesMax, options.tenant.size()));
  }
  Sampler sampler = TRY(Sampler::Create(options.sampling, impl_->info.vocab_size));
  Generation generation(*impl_, *session.impl_, options, std::move(sampler));
  return generation.Run(prompt);
}

}  // namespace minke
