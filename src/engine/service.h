// Many requests at once: the engine's own thread, which runs one step after another. A step mixes
// the next token of every answer that is being written with chunks of the prompts that are being
// read (continuous batching). What a request answers never depends on what else runs.
//
// Thread safety: every member may be called from any thread. Sinks are called on the engine's
// thread, one at a time, and must not block: a sink hands what it made to somebody else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"

namespace minke {

inline constexpr int kPriorityMin = -100;
inline constexpr int kPriorityMax = 100;

struct ServiceOptions {
  int64_t running_max = 64;        // requests that are read or written at the same time
  int64_t queued_max = 1024;       // requests that wait; one more is refused (ErrorCode::kLimit)
  int64_t step_rows_max = 256;     // prompt rows of one step, all requests together
  double queue_seconds_max = 600;  // a request that waited longer ends with an error; 0: no limit
  double stall_seconds_max = 120;  // a running request without progress ends so; 0: no limit
};

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
  int64_t preemptions = 0;  // how often it had to give its memory back and come again
  double queue_seconds = 0;
  double prefill_seconds = 0;  // from the first chunk to the first token
  double decode_seconds = 0;   // from the first token to the last
};

// Where an answer goes. Kept alive by the service until OnEnd() has returned.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // The request left the queue; what of its prompt is cached is known.
  virtual void OnStart(const CacheUse& /*use*/) {}
  virtual void OnPrefill(int64_t /*done*/, int64_t /*total*/) {}  // tokens of the prompt
  virtual AnswerVerdict OnToken(const ServiceToken& token) = 0;
  // The last call, exactly one for each submitted request. Errors: kCancelled, kLimit (waited or
  // ran too long, no memory), what the model says.
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
  int64_t preemptions = 0;
  int64_t prompt_tokens = 0;
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

  // For what needs no step: info(), Tokenize(), EncodeChat(), ControlToken(), ExplainCache().
  const Engine& engine() const;

  // Checks the request and queues it. Errors: an empty or too long prompt, ids outside the
  // vocabulary, options out of range (kInvalidInput); the queue is full or draining (kLimit).
  Result<RequestId> Submit(ServiceRequest request, std::shared_ptr<AnswerSink> sink);
  // The request stops within one step, whatever it is doing, and ends with kCancelled. Unknown and
  // ended ones are ignored.
  void Cancel(RequestId id);

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
