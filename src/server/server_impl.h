// What is behind the pointer of server.h. For the files of this folder only.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/json.h"
#include "server/answer_task.h"
#include "server/api_keys.h"
#include "server/kept_turns.h"
#include "server/ledger.h"
#include "server/metrics_report.h"
#include "server/model_table.h"
#include "server/prices.h"
#include "server/server.h"
#include "server/worker_pool.h"

namespace minke {

// Ended requests that the web page shows.
inline constexpr size_t kRecentAnswersMax = 256;

// Where a request goes; the path prefixes are taken off (serving.md 1.2).
enum class Endpoint {
  kUnknown,
  kPage,  // GET /
  kHealth,
  kMetrics,
  kState,  // GET /api/state, for the page
  kUsage,
  kModels,
  kModel,  // GET /v1/models/NAME
  kChat,
  kCompletions,
  kResponses,
  kMessages,
  kCountTokens,
};
struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string name;  // what follows, for kModel and kPage
};
// `path`: decoded, without the query. "/", "/v1", "/beta", "/anthropic" and their combinations may
// stand before an endpoint.
Route RouteOf(std::string_view path);
ApiFamily FamilyOf(Endpoint endpoint);
// In whose envelope an error is answered: that of the endpoint; where it has none, Messages to who
// asks below /anthropic or with the header of that API.
ApiFamily FamilyOf(const HttpRequest& request);

// A file of the web page, compiled in.
struct PageFile {
  std::string_view path;  // "/app.js"
  std::string_view type;  // of the content
  std::string_view bytes;
};
// nullptr if there is none of that path; "/" is the page itself.
const PageFile* FindPageFile(std::string_view path);

struct Server::Impl : AnswerHost {
  using Clock = std::chrono::steady_clock;

  explicit Impl(ServerOptions options_in) : options(std::move(options_in)) {}
  ~Impl() override;

  Status Open(std::unique_ptr<Service> service_in);

  // A request as it comes from the socket (routes.cc).
  void Handle(std::shared_ptr<HttpExchange> exchange);
  void Answer(const Route& route, std::shared_ptr<HttpExchange> exchange,
              const std::string& request_id);
  // Reads, encodes and submits (request_run.cc); on a thread of the pool.
  void RunRequest(Endpoint endpoint, const std::shared_ptr<HttpExchange>& exchange,
                  const std::string& request_id, const std::string& key_name,
                  Clock::time_point arrived);
  // The request and its prompt, or what is wrong with it.
  ApiResult<ApiRequest> ReadRequest(Endpoint endpoint, const std::string& body) const;
  ApiResult<std::vector<int32_t>> EncodeRequest(const ApiRequest& request) const;
  AnswerIds NewIds(const std::string& model);
  // Whether its answer can be kept, and after which tokens it comes.
  TurnPlace PlaceOf(const ApiRequest& request, const std::vector<int32_t>& prompt) const;
  // A failure is a warning in the log.
  void SaveTurns();
  void Submit(AnswerJob job, std::vector<int32_t> prompt, const std::string& tenant,
              const std::shared_ptr<HttpExchange>& exchange);

  void Refuse(ApiFamily family, const ApiError& error, HttpExchange& exchange,
              const std::string& request_id);
  // What the HTTP server answers by itself. `head`: null where the request has not come that far.
  HttpErrorAnswer RefuseUnread(const ApiError& error, const HttpRequest* head);
  // The same for a prompt and an answer that do not fit the context.
  void RefuseLength(const ApiRequest& request, const ApiError& error, HttpExchange& exchange,
                    const std::string& request_id);
  void LogRefusal(std::string_view path, const ApiError& error,
                  const std::string& request_id) const;
  void RespondJson(HttpExchange& exchange, const Json& body, const std::string& request_id);
  HttpHeaders CommonHeaders(const HttpRequest& request, const std::string& request_id) const;
  // GET bodies (operator_pages.cc).
  std::string MetricsBody() const;
  Json StateBody() const;
  ApiResult<Json> UsageBody(std::string_view query, std::string_view key_name) const;
  void Log(const Json& event) const;
  void LogWarning(const std::string& message) const;

  void Price(Usage* usage) const override;
  void OnInterTokenSeconds(double seconds) override;
  void OnKeepAlive() override;
  std::string TokenBytes(int32_t id) const override;
  void OnAnswerEnd(const AnswerRecord& record) override;
  void KeepTurn(const TurnPlace& place, WrittenTurn turn) override;

  // Wakes every live answer once a second.
  void RunTicker(const std::stop_token& stop);

  ServerOptions options;
  std::vector<std::string> warnings;
  std::unique_ptr<Service> service;
  ModelTable models = ModelTable::Default();
  PriceTable prices = PriceTable::Default();
  ApiKeys keys;
  std::unique_ptr<Ledger> ledger;  // null: nothing is kept
  KeptTurns turns;
  TurnTokens turn_tokens;
  ServerMetrics metrics;
  Clock::time_point started = Clock::now();
  int64_t started_unix = 0;

  mutable std::mutex mutex;                     // of what follows
  std::vector<std::weak_ptr<AnswerTask>> live;  // for keep-alives
  std::deque<AnswerRecord> recent;              // latest last
  uint64_t ids_made = 0;
  uint64_t id_seed = 0;

  // In this order: sockets go first, then the ticker, then the pool, then the service.
  std::unique_ptr<WorkerPool> workers;
  std::jthread ticker;
  std::unique_ptr<HttpServer> http;
};

}  // namespace minke
