// What is behind Service: the requests, the queue, the two threads. For the service's files only.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/service.h"

namespace minke {

// Lock order: a request's sink_mutex before mutex, because sinks call the service. Whoever has
// mutex may only try to take a sink_mutex.
struct Service::Impl {
  // A submitted request until its OnEnd() has returned. Belongs to the engine's thread, but for
  // what says otherwise.
  struct Request {
    Request(Engine::Impl& engine, ServiceRequest&& request, std::unique_ptr<AnswerSink> sink_in);

    RequestId id = 0;
    Sequence sequence;
    std::unique_ptr<Session::Impl> session;  // while it has memory
    SchedulerJob job;
    ServiceResult result;
    bool started = false;  // OnStart() was called
    double waiting_since = 0;
    double started_at = 0;
    double first_token_at = 0;
    double last_token_at = 0;
    int64_t prefill_done = 0;  // of the prompt, cached or read: as OnPrefill() was told

    std::atomic<bool> cancelled{false};
    bool in_queue = true;   // counts for the limits of the queue. Guarded by Impl::mutex, as next
    bool given_up = false;  // by the watchdog
    std::mutex sink_mutex;
    std::unique_ptr<AnswerSink> sink;  // guarded by sink_mutex; null after OnEnd()
  };

  Impl(std::unique_ptr<Engine> engine_in, Engine::Impl& parts_in, const ServiceOptions& options_in);
  ~Impl();
  // Once, before anything else. After an error there is nothing but the destructor.
  Status StartThreads();

  double Now() const;
  Status Refusal(int64_t prompt_tokens) const;  // REQUIRES mutex held
  Status CheckRequest(const ServiceRequest& request) const;
  void RunJob(std::function<void()> job);
  void CancelAll();

  // ---- the engine's thread (service_steps.cc) ----
  void Loop();
  bool WaitForWork();
  void Step();
  void EndCancelled();
  void EndOverdue();
  void ContinueLoading();
  void AdmitWaiting();
  // Gives the request memory and what the cache has of it, or sends it back.
  void TakeUp(Request& request, int64_t disk_blocks_max);
  // Nobody else holds memory, and still there is none.
  void EndForMemory(Request& request, const Error& error);
  void Start(Request& request);
  // Of the prompt so much is cached or read now.
  void CountPrompt(Request& request, int64_t done);
  void Preempt(Request& request, bool no_room);
  // What the scheduler has to know of a request that runs.
  void Track(Request& request);
  struct Work;
  void RunPlan(const StepPlan& plan);
  void Compute(std::vector<Work>& work);
  // What follows from computed rows: a token, or the end.
  void GoOn(const Work& item, std::vector<Request*>& growing);
  void Progress(Request& request);
  // Draws a token and shows it. Whether the answer goes on.
  bool DrawToken(Request& request, std::span<const float> logits);
  AnswerVerdict Show(Request& request, const DrawnToken& token);
  void Grow(Request& request);
  void Finish(Request& request, FinishReason reason, bool context_full);
  void End(Request& request, const Result<ServiceResult>& result);
  void LeaveQueue(Request& request);
  void PublishStatus(double seconds);

  // ---- the watchdog's thread ----
  void Watch();
  void EndStalled(std::unique_lock<std::mutex>& lock);

  const std::unique_ptr<Engine> engine;
  Engine::Impl& parts;
  const ServiceOptions options;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  // Of the engine's thread.
  Scheduler scheduler;
  std::unordered_map<RequestId, Request*> active;
  std::vector<float> logits;  // [rows that want them, vocab_size]
  ServiceStatus counts;       // without what status() adds

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable work_came;
  std::condition_variable work_done;  // the engine's thread waits, or a job is done
  std::condition_variable engine_ended;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests;
  std::vector<Request*> incoming;  // not yet known to the engine's thread
  std::deque<std::function<void()>> queued_jobs;
  ServiceStatus published;
  RequestId last_id = 0;
  int64_t queued_count = 0;
  int64_t queued_token_count = 0;
  int64_t given_up_count = 0;
  bool draining = false;
  bool stopping = false;
  bool stalled = false;         // the running step takes longer than it may
  bool engine_waits = false;    // the engine's thread has nothing to do
  bool engine_stopped = false;  // it has ended

  std::atomic<double> step_began{-1};      // -1: no step runs
  std::atomic<bool> any_cancelled{false};  // since the engine's thread last looked
  std::jthread engine_thread;
  std::jthread watchdog;
};

}  // namespace minke
