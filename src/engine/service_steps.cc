// What the engine's thread does: step after step, until the service ends.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/service.h"
#include "engine/service_impl.h"

namespace minke {

// The rows of one request in a step, and what came of them.
struct Service::Impl::Work {
  Work(Request* request_in, int64_t rows_max)
      : request(request_in), granted(rows_max), rows(request->sequence.NextRows(rows_max)) {}
  int64_t count() const { return static_cast<int64_t>(rows.tokens.size()); }

  Request* request;
  int64_t granted;  // rows of this step, these ones included
  StepRows rows;
  std::span<float> logits;
  Status status;
};

void Service::Impl::Loop() {
  while (WaitForWork()) {
    const double began = Now();
    step_began.store(began);
    Step();
    step_began.store(-1);
    PublishStatus(Now() - began);
  }
}

bool Service::Impl::WaitForWork() {
  std::deque<std::function<void()>> jobs;
  bool stop = false;
  {
    std::unique_lock<std::mutex> lock(mutex);
    engine_waits = active.empty() && incoming.empty();
    if (engine_waits) work_done.notify_all();
    work_came.wait(lock, [&] {
      return stopping || !active.empty() || !incoming.empty() || !queued_jobs.empty();
    });
    engine_waits = false;
    for (Request* request : incoming) {
      active.emplace(request->id, request);
      if (request->cancelled.load()) any_cancelled.store(true);
      scheduler.Add(request->job);
    }
    incoming.clear();
    jobs.swap(queued_jobs);
    stop = stopping;
  }
  for (const std::function<void()>& job : jobs) job();
  if (!jobs.empty()) work_done.notify_all();
  if (!stop) return true;
  CancelAll();
  EndCancelled();
  return false;
}

void Service::Impl::Step() {
  EndCancelled();
  EndOverdue();
  ContinueLoading();
  AdmitWaiting();
  const StepPlan plan = scheduler.Step();
  if (plan.empty()) return;
  ++counts.steps;
  RunPlan(plan);
}

// ---- ends ----

void Service::Impl::EndCancelled() {
  if (!any_cancelled.exchange(false)) return;
  std::vector<Request*> cancelled;
  for (const auto& [id, request] : active) {
    if (request->cancelled.load()) cancelled.push_back(request);
  }
  for (Request* request : cancelled) {
    End(*request, Fail(ErrorCode::kCancelled, "The request was cancelled."));
  }
}

void Service::Impl::EndOverdue() {
  for (const auto& [id, limit] : scheduler.FindOverdue(Now())) {
    Request& request = *active.at(id);
    const std::string message =
        limit == Overdue::kQueue
            ? fmt::format("The request waited for more than {} seconds; try again later.",
                          options.queue_seconds_max)
            : fmt::format("The request took longer than the {} seconds it was given.",
                          request.job.seconds_max);
    End(request, Fail(ErrorCode::kLimit, message));
  }
}

void Service::Impl::Finish(Request& request, FinishReason reason, bool context_full) {
  ServiceResult& result = request.result;
  result.finish_reason = reason;
  result.context_full = context_full;
  result.answer_tokens = static_cast<int64_t>(request.sequence.answer().size());
  if (result.answer_tokens > 0) {
    result.prefill_seconds = request.first_token_at - request.started_at;
    result.decode_seconds = request.last_token_at - request.first_token_at;
  } else {
    result.prefill_seconds = Now() - request.started_at;
  }
  const ServiceResult copy = result;
  End(request, copy);
}

// The request is gone afterwards.
void Service::Impl::End(Request& request, const Result<ServiceResult>& result) {
  counts.answer_tokens += static_cast<int64_t>(request.sequence.answer().size());
  request.sequence.SetAside();
  request.session.reset();
  scheduler.Remove(request.id);
  active.erase(request.id);
  std::unique_ptr<AnswerSink> sink;
  {
    const std::lock_guard<std::mutex> lock(request.sink_mutex);
    sink = std::move(request.sink);
    if (sink != nullptr) sink->OnEnd(result);
  }
  if (sink != nullptr) {  // otherwise it was counted when it was given up
    const bool cancelled = !result && result.error().code == ErrorCode::kCancelled;
    ++(result ? counts.finished : cancelled ? counts.cancelled : counts.failed);
  }
  LeaveQueue(request);
  const std::lock_guard<std::mutex> lock(mutex);
  requests.erase(request.id);
}

void Service::Impl::LeaveQueue(Request& request) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!std::exchange(request.in_queue, false)) return;
  --queued_count;
  queued_token_count -= request.sequence.prompt_tokens();
}

// ---- memory ----

void Service::Impl::ContinueLoading() {
  std::vector<Request*> loading;
  for (const auto& [id, request] : active) {
    if (request->sequence.phase() == SequencePhase::kLoading) loading.push_back(request);
  }
  const auto count = static_cast<int64_t>(loading.size());
  for (Request* request : loading) {
    // Another one may have taken its memory meanwhile.
    if (request->sequence.phase() != SequencePhase::kLoading) continue;
    TakeUp(*request, std::max<int64_t>(1, kDiskBlocksAtOnce / count));
  }
}

void Service::Impl::AdmitWaiting() {
  while (true) {
    const std::optional<uint64_t> id = scheduler.NextAdmission();
    if (!id.has_value()) return;
    Request& request = *active.at(*id);
    while (scheduler.running() >= options.running_max) {
      Preempt(*active.at(*scheduler.VictimFor(*id)), /*no_room=*/false);
    }
    scheduler.Admit(*id);
    request.session = std::make_unique<Session::Impl>(parts);
    // One block tells whether there are more to come, which then have to share.
    TakeUp(request, 1);
  }
}

void Service::Impl::TakeUp(Request& request, int64_t disk_blocks_max) {
  while (true) {
    const bool alone = scheduler.running() == 1;
    const Status status = request.sequence.TakeUp(*request.session, alone, disk_blocks_max);
    if (status) break;
    request.session.reset();
    const std::optional<uint64_t> victim = scheduler.VictimFor(request.id);
    if (!victim.has_value()) {
      if (alone) return EndForMemory(request, status.error());
      return scheduler.Block(request.id);
    }
    Preempt(*active.at(*victim), /*no_room=*/false);
    request.session = std::make_unique<Session::Impl>(parts);
  }
  if (request.sequence.phase() == SequencePhase::kLoading) return;
  Start(request);
  Track(request);
}

void Service::Impl::EndForMemory(Request& request, const Error& error) {
  if (!request.started) return End(request, tl::unexpected(error));
  Finish(request, FinishReason::kLength, /*context_full=*/true);
}

void Service::Impl::Start(Request& request) {
  const double now = Now();
  request.result.queue_seconds += now - request.waiting_since;
  if (std::exchange(request.started, true)) return;
  request.started_at = now;
  LeaveQueue(request);
  const CacheUse& use = request.sequence.cache_use();
  request.result.cache = use;
  counts.cached_ram_tokens += use.ram_tokens;
  counts.cached_disk_tokens += use.disk_tokens;
  CountPrompt(request, use.cached_tokens);
  const std::lock_guard<std::mutex> lock(request.sink_mutex);
  if (request.sink != nullptr) request.sink->OnStart(use);
}

// Counted as it is done: a request that is cancelled has no more of its prompt read.
void Service::Impl::CountPrompt(Request& request, int64_t done) {
  const CacheUse& use = request.result.cache;
  const auto replayed = [&](int64_t at) {
    return std::clamp<int64_t>(at - use.cached_tokens, 0, use.replayed_tokens);
  };
  const int64_t read = done - request.prefill_done;
  const int64_t again = replayed(done) - replayed(request.prefill_done);
  const int64_t cached =
      std::min(done, use.cached_tokens) - std::min(request.prefill_done, use.cached_tokens);
  counts.prompt_tokens += read;
  counts.replayed_tokens += again;
  counts.computed_tokens += read - again - cached;
  request.prefill_done = done;
}

void Service::Impl::Preempt(Request& request, bool no_room) {
  request.sequence.SetAside();
  request.session.reset();
  request.waiting_since = Now();
  scheduler.Preempt(request.id, no_room, request.waiting_since);
  ++request.result.preemptions;
  ++counts.preemptions;
}

void Service::Impl::Track(Request& request) {
  const Sequence& sequence = request.sequence;
  CHECK(sequence.phase() == SequencePhase::kPrefill || sequence.phase() == SequencePhase::kDecode);
  if (sequence.phase() == SequencePhase::kDecode) {
    scheduler.SetDecode(request.id);
  } else {
    scheduler.SetPrefill(request.id, sequence.rows_left());
  }
}

// ---- one step ----

// Rows are computed up to where snapshots are due; what a prompt was granted beyond that follows in
// a call of its own, or a short prompt would need a step for each of its messages.
void Service::Impl::RunPlan(const StepPlan& plan) {
  std::vector<Work> work;
  for (const StepPlan::Rows& part : plan.prefill) {
    work.emplace_back(active.at(part.id), part.rows);
  }
  for (const uint64_t id : plan.decode) work.emplace_back(active.at(id), 1);
  // All tokens are drawn before the first of them asks for memory: what gives it back then has
  // nothing of this step left to do.
  std::vector<Request*> growing;
  while (!work.empty()) {
    Compute(work);
    std::vector<Work> rest;
    for (const Work& item : work) {
      if (item.status && item.count() < item.granted) {
        item.request->sequence.Advance(item.count());
        Progress(*item.request);
        rest.emplace_back(item.request, item.granted - item.count());
      } else {
        GoOn(item, growing);
      }
    }
    work = std::move(rest);
  }
  for (Request* request : growing) {
    if (request->sequence.phase() == SequencePhase::kDecode) Grow(*request);
  }
}

void Service::Impl::GoOn(const Work& item, std::vector<Request*>& growing) {
  Request& request = *item.request;
  if (!item.status) return End(request, tl::unexpected(item.status.error()));
  request.sequence.Advance(item.count());
  Progress(request);
  if (request.sequence.phase() != SequencePhase::kDraw) return Track(request);
  if (DrawToken(request, item.logits)) growing.push_back(&request);
}

// An error is that of one request: where the call for all fails, each is asked alone.
void Service::Impl::Compute(std::vector<Work>& work) {
  const int64_t vocab_size = parts.info.vocab_size;
  const auto wanted = std::count_if(work.begin(), work.end(),
                                    [](const Work& item) { return item.rows.want_logits; });
  logits.resize(static_cast<size_t>(wanted * vocab_size));
  std::vector<StepRows> rows;
  float* next = logits.data();
  for (Work& item : work) {
    rows.push_back(item.rows);
    if (!item.rows.want_logits) continue;
    item.logits = {next, static_cast<size_t>(vocab_size)};
    next += vocab_size;
  }
  const Status status = parts.RunStep(rows, View<float>(logits.data(), wanted, vocab_size));
  if (status) return;
  for (Work& item : work) {
    const View<float> row(item.logits.data(), item.rows.want_logits ? 1 : 0, vocab_size);
    item.status = work.size() == 1 ? status : parts.RunStep({&item.rows, 1}, row);
  }
}

void Service::Impl::Progress(Request& request) {
  const int64_t done = std::min(request.sequence.read_tokens(), request.sequence.prompt_tokens());
  if (done <= request.prefill_done) return;
  CountPrompt(request, done);
  const std::lock_guard<std::mutex> lock(request.sink_mutex);
  if (request.sink != nullptr) request.sink->OnPrefill(done, request.sequence.prompt_tokens());
}

AnswerVerdict Service::Impl::Show(Request& request, const DrawnToken& drawn) {
  ServiceToken token;
  token.id = drawn.id;
  token.position = drawn.position;
  token.is_stop = drawn.is_stop;
  token.is_control = parts.loaded.tokenizer.IsControl(drawn.id);
  token.bytes = parts.loaded.tokenizer.TokenBytes(drawn.id);
  if (drawn.logprobs.has_value()) {
    token.logprob = &drawn.logprobs->chosen;
    token.alternatives = drawn.logprobs->best;
  }
  const std::lock_guard<std::mutex> lock(request.sink_mutex);
  return request.sink != nullptr ? request.sink->OnToken(token) : AnswerVerdict::kEnough;
}

bool Service::Impl::DrawToken(Request& request, std::span<const float> row) {
  Sequence& sequence = request.sequence;
  if (sequence.max_tokens() == 0) {
    Finish(request, FinishReason::kLength, /*context_full=*/false);
    return false;
  }
  const Result<DrawnToken> token = sequence.Draw(row);
  if (!token) {
    End(request, tl::unexpected(token.error()));
    return false;
  }
  request.last_token_at = Now();
  if (sequence.answer().size() == 1) request.first_token_at = request.last_token_at;
  const AnswerVerdict verdict = Show(request, *token);
  std::optional<FinishReason> ending = sequence.Ending(*token);
  if (verdict == AnswerVerdict::kEnough) ending = FinishReason::kStop;
  if (!ending.has_value()) return true;
  Finish(request, *ending, *ending == FinishReason::kLength && !sequence.has_max_tokens());
  return false;
}

void Service::Impl::Grow(Request& request) {
  while (!request.sequence.Grow()) {
    const std::optional<uint64_t> victim = scheduler.VictimOfGrowth();
    if (*victim == request.id) {
      if (scheduler.running() > 1) return Preempt(request, /*no_room=*/true);
      return Finish(request, FinishReason::kLength, /*context_full=*/true);
    }
    Preempt(*active.at(*victim), /*no_room=*/true);
  }
  Track(request);
}

void Service::Impl::PublishStatus(double seconds) {
  counts.step_seconds += seconds;
  counts.prefilling = scheduler.prefilling();
  counts.decoding = scheduler.decoding();
  counts.cache = engine->cache_status();
  const std::lock_guard<std::mutex> lock(mutex);
  published = counts;
  stalled = false;
}

}  // namespace minke
