// Many requests at once: the engine's own thread, which runs one step after another. A step mixes
// the next token of every answer that is being written with chunks of the prompts that are being
// read (continuous batching). What a request answers never depends on what else runs.
//
// Memory: a request is taken up when --kv-ram has room for its prompt and the next 4,096 tokens of
// its answer. Where an answer cannot grow, the running request of the lowest priority, of those the
// youngest, gives its memory back: its working state goes to the cache, and it waits again at its
// old place. It goes on with the bits it would have had (in replay mode: as long as the cache keeps
// that state). An answer ends for want of memory only where nothing else holds any.
//
// Between two steps the engine's thread also reads from disk what is cached of prompts, a bounded
// part at a time, so that a long read delays the others by milliseconds and can be cancelled in its
// midst.
//
// Thread safety: every member may be called from any thread. Sinks are called on the engine's
// thread, one at a time, and must not block: a sink hands what it made to somebody else. The
// exception is OnEnd() where a step hangs (stall_seconds_max): then it comes from another thread,
// but never while the engine's thread is in a call to the same sink.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"

namespace minke {

inline constexpr int kPriorityMin = -100;
inline constexpr int kPriorityMax = 100;

struct ServiceOptions {
  int64_t running_max = 64;   // requests that are read or written at the same time
  int64_t queued_max = 1024;  // requests that wait; one more is refused (ErrorCode::kLimit)
  int64_t queued_tokens_max = int64_t{64} << 20;  // tokens of their prompts
  int64_t step_rows_max = 256;     // prompt rows of one step, all requests together: a chunk. Takes
                                   // the place of EngineOptions::prefill_chunk_tokens
  double queue_seconds_max = 600;  // a request that waited longer ends with an error; 0: no limit
  // A step that takes longer ends every request with an error, and new ones are refused until it
  // comes back; 0: no limit. The step itself cannot be ended.
  double stall_seconds_max = 120;
};
inline constexpr int64_t kRunningMax = 1024;          // of ServiceOptions::running_max
inline constexpr size_t kServiceStopTokensMax = 256;  // of ServiceRequest::stop_tokens

struct ServiceRequest {
  std::vector<int32_t> prompt;
  SamplingOptions sampling;
  int64_t max_tokens = -1;  // -1: as many as the context has room for
  bool ignore_eos = false;
  std::vector<int32_t> stop_tokens;  // in addition to the end-of-sequence token
  std::string tenant;                // whose cache it is, and whose share of the machine
  int priority = 0;                  // higher ones go first
  double seconds_max = 0;            // from Submit() to the end; 0: no limit
};

// A drawn token. Spans and views live for the call.
struct ServiceToken {
  int32_t id = 0;
  int64_t position = 0;  // in the timeline
  bool is_control = false;
  bool is_stop = false;    // a stop token: it ends the answer and belongs to no text
  std::string_view bytes;  // of the token, possibly half a character; a control token's name
  const TokenLogprob* logprob = nullptr;       // if asked for
  std::span<const TokenLogprob> alternatives;  // best first, if asked for
};

enum class AnswerVerdict {
  kGoOn,
  kEnough,  // the answer is complete (a stop string, the end of a tool block): FinishReason::kStop
};

struct ServiceResult {
  FinishReason finish_reason = FinishReason::kLength;
  bool context_full = false;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;  // drawn, a stop token included
  CacheUse cache;
  int64_t preemptions = 0;     // how often it had to give its memory back and come again
  double queue_seconds = 0;    // also while it waited to come again
  double prefill_seconds = 0;  // from the end of the queue to the first token
  double decode_seconds = 0;   // from the first token to the last
};

// Where an answer goes. Belongs to the service, which drops it once OnEnd() has returned.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // The request left the queue; what of its prompt is cached is known. May come before Submit() has
  // returned, as may all others.
  virtual void OnStart(const CacheUse& /*use*/) {}
  // Tokens of the prompt that were cached or read; rising.
  virtual void OnPrefill(int64_t /*done*/, int64_t /*total*/) {}
  virtual AnswerVerdict OnToken(const ServiceToken& token) = 0;
  // The last call, exactly one for each submitted request. Errors: kCancelled, kLimit (waited or
  // ran too long, no memory, a step that hangs), what the model says. Nothing of the request is in
  // memory any more but what the cache keeps.
  virtual void OnEnd(const Result<ServiceResult>& result) = 0;
};

using RequestId = uint64_t;

struct ServiceStatus {
  int64_t queued = 0;
  int64_t prefilling = 0;
  int64_t decoding = 0;
  int64_t submitted = 0;  // since the start, as all below
  int64_t finished = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t stalled = 0;  // of the failed ones, those that the watchdog ended
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;  // cached or read, also of requests that ended before all of it was
  int64_t cached_ram_tokens = 0;
  int64_t cached_disk_tokens = 0;
  int64_t replayed_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t answer_tokens = 0;
  int64_t steps = 0;
  double step_seconds = 0;  // all steps together
  CacheStatus cache;
};

class Service {
 public:
  // Takes the engine; nobody else may call Generate() on it from then on.
  static Result<std::unique_ptr<Service>> Start(std::unique_ptr<Engine> engine,
                                                const ServiceOptions& options);
  // Cancels what runs, flushes the cache, ends the thread.
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // For what needs neither a step nor the cache: info(), Tokenize(), EncodeChat(), ControlToken()
  // and their like. Everything about the cache only while nothing runs or waits.
  const Engine& engine() const;
  // Engine::ExplainCache() between two steps.
  Result<CacheUse> ExplainCache(std::span<const int32_t> prompt, std::string_view tenant);

  // Checks the request and queues it. Errors: an empty prompt, ids outside the vocabulary, options
  // out of range (kInvalidInput); a prompt for which there can never be room, a queue that is full
  // or draining, a step that hangs (kLimit).
  Result<RequestId> Submit(ServiceRequest request, std::unique_ptr<AnswerSink> sink);
  // The request stops within one step, whatever it is doing, and ends with kCancelled. Unknown and
  // ended ones are ignored.
  void Cancel(RequestId id);
  // Every request that waits or runs.
  void CancelAll();

  // Takes no more requests. What runs goes on.
  void Drain();
  bool draining() const;
  // Waits until nothing runs or waits, at most so long; then the cache is flushed. True if so.
  bool WaitUntilIdle(double seconds_max);

  ServiceStatus status() const;

 private:
  struct Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke
