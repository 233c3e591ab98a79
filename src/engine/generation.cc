// One answer: reads the prompt in chunks, then draws token after token (engine.h).
#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace minke {
namespace {

using Clock = std::chrono::steady_clock;

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
             Sequence& sequence)
      : engine_(engine),
        session_(session),
        options_(options),
        sequence_(sequence),
        detokenizer_(engine.loaded.tokenizer),
        stops_(options.stop_strings),
        in_reasoning_(engine.think_start == sequence.history().back()) {}

  Result<GenerationResult> Run();

 private:
  Status Answer();
  // False if the caller cancelled.
  Result<bool> Prefill();
  Status Decode();
  // Runs the next rows of the sequence alone.
  Status RunRows(int64_t rows_max);
  // Draws a token, shows it, and says whether the answer goes on.
  Result<bool> Step();
  // Why the answer ends after the token that was just shown, if it does.
  std::optional<FinishReason> Ending(const DrawnToken& token);
  void Show(TokenEvent event, bool is_stop_token);
  void Emit(TokenEvent event, const std::string& text);
  void FlushText();
  bool Cancelled() const {
    return options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed);
  }

  Engine::Impl& engine_;
  Session::Impl& session_;
  const GenerationOptions& options_;
  Sequence& sequence_;
  StreamingDetokenizer detokenizer_;
  StopMatcher stops_;
  bool in_reasoning_ = false;
  GenerationResult result_;
};

Status Generation::RunRows(int64_t rows_max) {
  const StepRows rows = sequence_.NextRows(rows_max);
  const int64_t vocab_size = engine_.info.vocab_size;
  session_.logits.resize(rows.want_logits ? static_cast<size_t>(vocab_size) : 0);
  const View<float> row(session_.logits.data(), rows.want_logits ? 1 : 0, vocab_size);
  Status status = engine_.RunStep({&rows, 1}, row);
  if (!status) {
    session_.logits.clear();
    return status;
  }
  sequence_.Advance(static_cast<int64_t>(rows.tokens.size()));
  return {};
}

Result<bool> Generation::Prefill() {
  while (sequence_.phase() == SequencePhase::kWaiting ||
         sequence_.phase() == SequencePhase::kLoading) {
    if (Cancelled()) return false;
    TRY_STATUS(sequence_.TakeUp(session_, /*alone=*/true, kDiskBlocksAtOnce));
  }
  result_.cache = sequence_.cache_use();
  while (sequence_.phase() == SequencePhase::kPrefill) {
    if (Cancelled()) return false;
    TRY_STATUS(RunRows(engine_.options.prefill_chunk_tokens));
    if (options_.prefill_progress) {
      options_.prefill_progress(sequence_.read_tokens(), sequence_.prompt_tokens());
    }
  }
  return !Cancelled();
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
  if (!text.empty()) Emit({.position = sequence_.read_tokens()}, text);
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

std::optional<FinishReason> Generation::Ending(const DrawnToken& token) {
  if (token.is_stop) return FinishReason::kStop;
  if (stops_.matched()) return FinishReason::kStopString;
  if (Cancelled()) return FinishReason::kCancelled;
  const std::optional<FinishReason> ending = sequence_.Ending(token);
  if (ending.has_value()) {
    result_.context_full = !sequence_.has_max_tokens();
    return ending;
  }
  if (sequence_.Grow()) return std::nullopt;
  result_.context_full = true;
  return FinishReason::kLength;
}

Result<bool> Generation::Step() {
  const std::span<const float> logits = session_.logits;
  const DrawnToken token = TRY(sequence_.Draw(logits));
  result_.ids.push_back(token.id);
  TokenEvent event{.id = token.id, .position = token.position, .logits = logits};
  if (token.logprobs.has_value()) {
    event.logprob = &token.logprobs->chosen;
    event.alternatives = token.logprobs->best;
  }
  Show(event, token.is_stop);
  const std::optional<FinishReason> ending = Ending(token);
  if (!ending.has_value()) return true;
  result_.finish_reason = *ending;
  if (stops_.matched()) result_.stop_string = stops_.match();
  return false;
}

Status Generation::Decode() {
  Clock::time_point first_drawn;
  while (true) {
    const bool goes_on = TRY(Step());
    if (result_.ids.size() == 1) first_drawn = Clock::now();
    if (!goes_on) break;
    TRY_STATUS(RunRows(1));
  }
  if (!stops_.matched()) FlushText();
  result_.decode_seconds = SecondsSince(first_drawn);
  return {};
}

Status Generation::Answer() {
  const Clock::time_point start = Clock::now();
  const bool whole = TRY(Prefill());
  result_.prefill_seconds = SecondsSince(start);
  if (!whole) {
    result_.finish_reason = FinishReason::kCancelled;
    return {};
  }
  return options_.max_tokens == 0 ? Status() : Decode();
}

Result<GenerationResult> Generation::Run() {
  result_.prompt_tokens = sequence_.prompt_tokens();
  const Status status = Answer();
  sequence_.SetAside();
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
  TRY_STATUS(CheckStopStrings(options.stop_strings));
  SequenceOptions sequence_options{.sampling = options.sampling,
                                   .max_tokens = options.max_tokens,
                                   .ignore_eos = options.ignore_eos,
                                   .stop_tokens = options.stop_tokens,
                                   .tenant = options.tenant};
  TRY_STATUS(Sequence::Check(*impl_, prompt, sequence_options));
  Sequence sequence(*impl_, {prompt.begin(), prompt.end()}, std::move(sequence_options));
  const WeightsUse before = WeightsUseOf(*impl_->loaded.model);
  GenerationResult result = TRY(Generation(*impl_, *session.impl_, options, sequence).Run());
  result.weights = WeightsUseSince(*impl_->loaded.model, before);
  return result;
}

}  // namespace minke
