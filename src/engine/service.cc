// The service as its callers see it, and the watchdog. What the engine's thread does is in
// service_steps.cc.
#include "engine/service.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/thread_start.h"
#include "engine/service_impl.h"

namespace minke {
namespace {

// How often the watchdog looks.
constexpr double kWatchSecondsMax = 1.0;
constexpr double kWatchSecondsMin = 0.005;

Status CheckServiceOptions(const ServiceOptions& options) {
  const auto outside = [](const char* name, int64_t low, int64_t high, int64_t value) {
    return Fail(fmt::format("{} must be between {} and {}, found {}.", name, low, high, value));
  };
  if (options.running_max < 1 || options.running_max > kRunningMax) {
    return outside("running_max", 1, kRunningMax, options.running_max);
  }
  if (options.step_rows_max < 1 || options.step_rows_max > kPrefillChunkTokensMax) {
    return outside("step_rows_max", 1, kPrefillChunkTokensMax, options.step_rows_max);
  }
  if (options.queued_max < 1 || options.queued_tokens_max < 1) {
    return Fail("The queue must have room for a request of one token.");
  }
  if (!(options.queue_seconds_max >= 0) || !(options.stall_seconds_max >= 0)) {
    return Fail("Limits of time must be 0 (none) or more seconds.");
  }
  return {};
}

}  // namespace

Service::Impl::Request::Request(Engine::Impl& engine, ServiceRequest&& request,
                                std::unique_ptr<AnswerSink> sink_in)
    : sequence(engine, std::move(request.prompt),
               SequenceOptions{.sampling = std::move(request.sampling),
                               .max_tokens = request.max_tokens,
                               .ignore_eos = request.ignore_eos,
                               .stop_tokens = std::move(request.stop_tokens),
                               .tenant = request.tenant}),
      sink(std::move(sink_in)) {
  job.tenant = std::move(request.tenant);
  job.priority = request.priority;
  job.seconds_max = request.seconds_max;
  result.prompt_tokens = sequence.prompt_tokens();
}

Service::Impl::Impl(std::unique_ptr<Engine> engine_in, Engine::Impl& parts_in,
                    const ServiceOptions& options_in)
    : engine(std::move(engine_in)),
      parts(parts_in),
      options(options_in),
      scheduler({.running_max = options_in.running_max,
                 .step_rows_max = options_in.step_rows_max,
                 .queue_seconds_max = options_in.queue_seconds_max}) {
  published.cache = engine->cache_status();
}

Status Service::Impl::StartThreads() {
  engine_thread = TRY(StartThread("the engine", [this](const std::stop_token&) { Loop(); }));
  if (options.stall_seconds_max > 0) {
    watchdog =
        TRY(StartThread("the watchdog of the engine", [this](const std::stop_token&) { Watch(); }));
  }
  return {};
}

Service::Impl::~Impl() {
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  work_came.notify_all();
  if (engine_thread.joinable()) engine_thread.join();
  {
    const std::lock_guard<std::mutex> lock(mutex);
    engine_stopped = true;
  }
  engine_ended.notify_all();
  work_done.notify_all();
  if (watchdog.joinable()) watchdog.join();
  engine->FlushCache();
}

double Service::Impl::Now() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// ---- submitting ----

Status Service::Impl::CheckRequest(const ServiceRequest& request) const {
  if (request.priority < kPriorityMin || request.priority > kPriorityMax) {
    return Fail(fmt::format("priority must be between {} and {}, found {}.", kPriorityMin,
                            kPriorityMax, request.priority));
  }
  if (!(request.seconds_max >= 0) || !std::isfinite(request.seconds_max)) {
    return Fail(
        fmt::format("seconds_max must be 0 (no limit) or more, found {}.", request.seconds_max));
  }
  if (request.stop_tokens.size() > kServiceStopTokensMax) {
    return Fail(ErrorCode::kLimit, fmt::format("At most {} stop tokens are allowed, found {}.",
                                               kServiceStopTokensMax, request.stop_tokens.size()));
  }
  TRY_STATUS(Sequence::Check(parts, request.prompt,
                             {.sampling = request.sampling,
                              .max_tokens = request.max_tokens,
                              .ignore_eos = request.ignore_eos,
                              .stop_tokens = {},
                              .tenant = request.tenant}));
  const auto tokens = static_cast<int64_t>(request.prompt.size());
  const int64_t bytes = (tokens + kBlockTokens - 1) / kBlockTokens * parts.rows->block_bytes();
  if (parts.rows->block_bytes() != kNoRowsBlockBytes && bytes > parts.info.cache_ram_bytes) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The prompt's {} tokens need {} bytes of memory for their rows, but "
                            "--kv-ram has {}; shorten the prompt or raise it.",
                            tokens, bytes, parts.info.cache_ram_bytes));
  }
  return {};
}

Status Service::Impl::Refusal(int64_t prompt_tokens) const {
  if (draining || stopping) {
    return Fail(ErrorCode::kLimit, "The server is about to stop and takes no more requests.");
  }
  if (stalled) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The engine has been at one step for more than {} seconds and takes "
                            "no requests until it is through.",
                            options.stall_seconds_max));
  }
  if (queued_count >= options.queued_max) {
    return Fail(ErrorCode::kLimit,
                fmt::format("{} requests are waiting, which is as many as may wait; try again "
                            "later.",
                            queued_count));
  }
  if (queued_token_count + prompt_tokens > options.queued_tokens_max) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The prompts that are waiting have {} tokens, and {} may wait; try "
                            "again later.",
                            queued_token_count, options.queued_tokens_max));
  }
  return {};
}

Result<RequestId> Service::Submit(ServiceRequest request, std::unique_ptr<AnswerSink> sink) {
  CHECK(sink != nullptr);
  TRY_STATUS(impl_->CheckRequest(request));
  auto entry =
      std::make_unique<Impl::Request>(*engine().impl_, std::move(request), std::move(sink));
  const int64_t tokens = entry->sequence.prompt_tokens();
  RequestId id = 0;
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    TRY_STATUS(impl_->Refusal(tokens));
    id = ++impl_->last_id;
    entry->id = entry->job.id = id;
    entry->job.submitted = entry->waiting_since = impl_->Now();
    // Nobody may know a request that another one does not, so all memory is taken before.
    impl_->incoming.reserve(impl_->incoming.size() + 1);
    Impl::Request* const known = entry.get();
    impl_->requests.emplace(id, std::move(entry));
    impl_->incoming.push_back(known);
    ++impl_->queued_count;
    impl_->queued_token_count += tokens;
  }
  impl_->work_came.notify_one();
  return id;
}

void Service::Cancel(RequestId id) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  const auto found = impl_->requests.find(id);
  if (found == impl_->requests.end()) return;
  found->second->cancelled.store(true);
  impl_->any_cancelled.store(true);
}

void Service::Impl::CancelAll() {
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto& [id, request] : requests) request->cancelled.store(true);
  any_cancelled.store(true);
}

void Service::CancelAll() {
  impl_->CancelAll();
}

// ---- the rest ----

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::~Service() = default;

Result<std::unique_ptr<Service>> Service::Start(std::unique_ptr<Engine> engine,
                                                const ServiceOptions& options) {
  CHECK(engine != nullptr);
  TRY_STATUS(CheckServiceOptions(options));
  Engine::Impl& parts = *engine->impl_;
  auto impl = std::make_unique<Impl>(std::move(engine), parts, options);
  TRY_STATUS(impl->StartThreads());
  return std::unique_ptr<Service>(new Service(std::move(impl)));
}

const Engine& Service::engine() const {
  return *impl_->engine;
}

void Service::Impl::RunJob(std::function<void()> job) {
  bool done = false;
  std::unique_lock<std::mutex> lock(mutex);
  queued_jobs.push_back([this, &done, job = std::move(job)] {
    job();
    const std::lock_guard<std::mutex> done_lock(mutex);
    done = true;
  });
  work_came.notify_one();
  work_done.wait(lock, [&] { return done; });
}

Result<CacheUse> Service::ExplainCache(std::span<const int32_t> prompt, std::string_view tenant) {
  Result<CacheUse> report = CacheUse{};
  impl_->RunJob([&] { report = engine().ExplainCache(prompt, tenant); });
  return report;
}

void Service::Drain() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->draining = true;
}

bool Service::draining() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->draining;
}

bool Service::WaitUntilIdle(double seconds_max) {
  {
    std::unique_lock<std::mutex> lock(impl_->mutex);
    const bool is_idle =
        impl_->work_done.wait_for(lock, std::chrono::duration<double>(seconds_max),
                                  [&] { return impl_->requests.empty() && impl_->engine_waits; });
    if (!is_idle) return false;
  }
  engine().FlushCache();
  return true;
}

ServiceStatus Service::status() const {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  ServiceStatus status = impl_->published;
  const auto all = static_cast<int64_t>(impl_->requests.size());
  status.queued = std::max<int64_t>(0, all - status.prefilling - status.decoding);
  status.submitted = static_cast<int64_t>(impl_->last_id);
  status.failed += impl_->given_up_count;
  status.stalled = impl_->given_up_count;
  return status;
}

// ---- the watchdog ----

void Service::Impl::Watch() {
  const double pause =
      std::clamp(options.stall_seconds_max / 4, kWatchSecondsMin, kWatchSecondsMax);
  std::unique_lock<std::mutex> lock(mutex);
  while (!engine_stopped) {
    engine_ended.wait_for(lock, std::chrono::duration<double>(pause));
    const double began = step_began.load();
    if (began >= 0 && Now() - began > options.stall_seconds_max) EndStalled(lock);
  }
}

// Whoever waits for the engine is told, and the engine finds them gone when it comes back.
void Service::Impl::EndStalled(std::unique_lock<std::mutex>& lock) {
  stalled = true;
  while (true) {
    Request* request = nullptr;
    std::unique_lock<std::mutex> sink_lock;
    for (auto& [id, candidate] : requests) {
      if (candidate->given_up) continue;
      // It is the sink itself that hangs: nobody can be told through it.
      std::unique_lock<std::mutex> attempt(candidate->sink_mutex, std::try_to_lock);
      if (!attempt.owns_lock()) continue;
      request = candidate.get();
      sink_lock = std::move(attempt);
      break;
    }
    if (request == nullptr) return;
    request->given_up = true;
    request->cancelled.store(true);
    any_cancelled.store(true);
    const std::unique_ptr<AnswerSink> sink = std::move(request->sink);
    if (sink == nullptr) continue;
    ++given_up_count;
    lock.unlock();
    sink->OnEnd(Fail(ErrorCode::kLimit,
                     fmt::format("The engine has been at one step for more than {} seconds; the "
                                 "request was given up. Try again.",
                                 options.stall_seconds_max)));
    sink_lock.unlock();
    lock.lock();
  }
}

}  // namespace minke
