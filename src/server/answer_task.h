// One answer on its way from the engine to its client: tokens become pieces, pieces become the
// bytes of an API family, and at the end everything is counted.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/service.h"
#include "server/api.h"
#include "server/http_server.h"
#include "server/metrics_report.h"
#include "server/turn_recorder.h"
#include "text/answer_parser.h"

namespace minke {

// What one request was, when it is over: for ledger, metrics, log and the web page.
struct AnswerRecord {
  std::string request_id;
  ApiFamily family = ApiFamily::kChat;
  std::string model;
  std::string key_name;
  std::string conversation;  // what the web page groups by; may be empty
  AnswerOutcome outcome = AnswerOutcome::kStop;
  std::string error;  // a sentence, where the outcome is kError
  Usage usage;
  AnswerRecoveries recoveries;
  bool gone = false;                // the client left before the end
  double first_token_seconds = -1;  // from the arrival of the request; -1: there was none
  double seconds = 0;               // from the arrival to the end
};

// What tasks need of the server. Every member may be called from any thread.
class AnswerHost {
 public:
  virtual ~AnswerHost() = default;
  // Fills cost and currency of a finished request.
  virtual void Price(Usage* usage) const = 0;
  virtual void OnInterTokenSeconds(double seconds) = 0;
  virtual void OnKeepAlive() = 0;
  // The bytes of a token of the vocabulary.
  virtual std::string TokenBytes(int32_t id) const = 0;
  virtual void OnAnswerEnd(const AnswerRecord& record) = 0;
  // A turn that its client has seen whole.
  virtual void KeepTurn(const TurnPlace& place, WrittenTurn turn) = 0;
};

// A request that was read and encoded.
struct AnswerJob {
  ApiRequest request;
  TurnPlace place;
  AnswerIds ids;
  std::string request_id;
  std::string key_name;
  std::string conversation;
  HttpHeaders headers;  // that every answer has: x-request-id, CORS
  int64_t prompt_tokens = 0;
  bool keep_alive_comments = true;
  double keep_alive_seconds = 10;
  std::chrono::steady_clock::time_point arrived;
};

// Created before Submit(). The service holds it through a sink that passes its calls on; the ticker
// of the server has a weak reference for keep-alives.
class AnswerTask {
 public:
  AnswerTask(AnswerHost& host, AnswerJob job, std::shared_ptr<HttpExchange> exchange);
  ~AnswerTask();
  AnswerTask(const AnswerTask&) = delete;
  AnswerTask& operator=(const AnswerTask&) = delete;

  // The request waits: a stream's head goes out, so that the client has a byte within a second.
  void Begin();
  // Sends what keeps the connection open if nothing was sent for long enough.
  void Tick(std::chrono::steady_clock::time_point now);
  // The submission failed: the whole answer is this error.
  void Refuse(const ApiError& error);

  // As AnswerSink.
  void OnStart(const CacheUse& use);
  void OnPrefill(int64_t done);
  AnswerVerdict OnToken(const ServiceToken& token);
  void OnEnd(const Result<ServiceResult>& result);

 private:
  using Clock = std::chrono::steady_clock;

  // All with mutex_ held.
  void Send(std::string bytes);
  void StartHead(int status);
  void WritePieces();
  // complete: the parser found the end of the answer by itself.
  AnswerEnd EndOf(const ServiceResult& result, bool complete);
  // Makes the usage of an answer that has no result what was done for it.
  void CountWork();
  void Respond(int status, std::string body, double retry_after_seconds = 0);
  void Fail(const ApiError& error);
  void Report(AnswerOutcome outcome, std::string error);
  void KeepTurn(AnswerFinish finish);

  AnswerHost& host_;
  const AnswerJob job_;
  const std::shared_ptr<HttpExchange> exchange_;

  std::mutex mutex_;  // the engine's thread and the ticker meet here
  std::unique_ptr<AnswerWriter> writer_;
  AnswerParser parser_;
  std::vector<AnswerPiece> pieces_;
  TurnRecorder recorder_;
  Usage usage_;
  bool head_sent_ = false;
  bool over_ = false;
  Clock::time_point last_sent_;
  std::optional<Clock::time_point> started_at_;  // when it left the queue
  int64_t prompt_done_ = 0;                      // tokens of the prompt, cached or read
  Clock::time_point first_token_;                // once there is one
  Clock::time_point last_token_;
};

// The sink of a task, for Service::Submit().
std::unique_ptr<AnswerSink> SinkOf(std::shared_ptr<AnswerTask> task);

}  // namespace minke
