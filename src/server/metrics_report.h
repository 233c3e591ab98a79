// What /metrics says: the server's counters and histograms, and the text made of them and of what
// engine and sockets count themselves (serving.md 5.1). docs/metrics.md lists every name.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/service.h"
#include "server/api.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "text/answer_parser.h"

namespace minke {

struct MetricsSource;

// How an answer ended, as metrics tell it apart.
enum class AnswerOutcome { kStop, kLength, kToolCalls, kCancelled, kError };
inline constexpr size_t kAnswerOutcomes = 5;
// "stop", "length", "tool_calls", "cancelled", "error"
const char* AnswerOutcomeName(AnswerOutcome outcome);

// One answer that ended, whichever way. Times are seconds; below zero: it never came so far.
struct AnsweredRequest {
  ApiFamily family = ApiFamily::kChat;
  AnswerOutcome outcome = AnswerOutcome::kStop;
  double first_token_seconds = -1;  // from the request's arrival
  double total_seconds = -1;        // the same
  double queue_seconds = -1;
  double prefill_seconds = -1;
  double decode_seconds = -1;
  int64_t prompt_tokens = 0;
  int64_t answer_tokens = 0;
  double cost = 0;
  AnswerRecoveries recoveries;
};

// What the server itself counts. Every member may be called from any thread.
class ServerMetrics {
 public:
  ServerMetrics();

  void AddAnswer(const AnsweredRequest& answer);
  // Seconds between two tokens of one answer.
  void AddTokenGap(double seconds) { inter_token_.Observe(seconds); }

  // Parts of MetricsReport().
  void WriteAnswers(MetricsText& text, const std::string& currency) const;
  void WriteVllm(MetricsText& text, const MetricsSource& source) const;

  std::atomic<int64_t> keep_alives = 0;       // comments, events and blank lines sent while waiting
  std::atomic<int64_t> unauthorized = 0;      // requests without a valid key
  std::atomic<int64_t> invalid = 0;           // requests that an API refused with 400 or 422
  std::atomic<int64_t> overloaded = 0;        // requests refused with 429 or 503
  std::atomic<int64_t> replayed_turns = 0;    // turns found in the map of exact replays
  std::atomic<int64_t> unreplayed_turns = 0;  // turns that were not

 private:
  int64_t Outcomes(AnswerOutcome outcome) const;

  static constexpr size_t kFamilies = 4;
  static constexpr size_t kRecoveryKinds = 4;

  std::array<std::array<std::atomic<int64_t>, kAnswerOutcomes>, kFamilies> answers_ = {};
  std::array<std::atomic<int64_t>, kRecoveryKinds> recoveries_ = {};
  std::atomic<double> cost_ = 0;
  Histogram first_token_;
  Histogram inter_token_;
  Histogram total_;
  Histogram queue_;
  Histogram prefill_;
  Histogram decode_;
  Histogram prompt_tokens_;
  Histogram answer_tokens_;
};

// Everything that one report is made of.
struct MetricsSource {
  const ServerMetrics* server = nullptr;  // REQUIRED
  ServiceStatus service;
  HttpStatus http;
  int64_t cache_ram_bytes = 0;  // the budgets, as in EngineInfo
  int64_t cache_snapshot_bytes = 0;
  std::string model;     // the name that clients use
  std::string version;   // of the program
  std::string currency;  // of the price table
  double uptime_seconds = 0;
  bool draining = false;
  bool ledger_ok = true;  // Ledger::warning() is empty
  // Print vllm:* too, for dashboards that know no others.
  bool vllm_names = false;
};

// The exposition text, format 0.0.4 of Prometheus.
inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";
std::string MetricsReport(const MetricsSource& source);

}  // namespace minke
