// Which path means what, and who may ask (serving.md 1.2, 5.2).
#include <array>
#include <utility>

#include <fmt/format.h>

#include "server/messages_api.h"
#include "server/request_guard.h"
#include "server/server_impl.h"

namespace minke {
namespace {

struct RouteRow {
  std::string_view path;
  Endpoint endpoint;
};
constexpr std::array<RouteRow, 10> kRoutes = {{
    {"/chat/completions", Endpoint::kChat},
    {"/completions", Endpoint::kCompletions},
    {"/responses", Endpoint::kResponses},
    {"/messages", Endpoint::kMessages},
    {"/messages/count_tokens", Endpoint::kCountTokens},
    {"/models", Endpoint::kModels},
    {"/usage", Endpoint::kUsage},
    {"/health", Endpoint::kHealth},
    {"/metrics", Endpoint::kMetrics},
    {"/api/state", Endpoint::kState},
}};

bool TakePrefix(std::string_view& path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  const std::string_view rest = path.substr(prefix.size());
  if (!rest.empty() && rest.front() != '/') return false;
  path = rest;
  return true;
}

bool IsPost(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kChat:
    case Endpoint::kCompletions:
    case Endpoint::kResponses:
    case Endpoint::kMessages:
    case Endpoint::kCountTokens:
      return true;
    default:
      return false;
  }
}

// What is there for everybody: the page asks for a key itself, and a probe has none.
bool IsOpen(Endpoint endpoint) {
  return endpoint == Endpoint::kPage || endpoint == Endpoint::kHealth;
}

ApiError NotFound(std::string_view path) {
  return {.status = 404,
          .message = fmt::format("There is nothing at {}. The APIs are at /v1/chat/completions, "
                                 "/v1/completions, /v1/responses and /v1/messages.",
                                 path)};
}

}  // namespace

Route RouteOf(std::string_view path) {
  if (FindPageFile(path) != nullptr) return {Endpoint::kPage, std::string(path)};
  std::string_view rest = path;
  if (!TakePrefix(rest, "/beta")) TakePrefix(rest, "/anthropic");
  TakePrefix(rest, "/v1");
  if (rest.empty() || rest == "/") return {Endpoint::kPage, "/"};
  for (const RouteRow& row : kRoutes) {
    if (rest == row.path) return {row.endpoint, {}};
  }
  constexpr std::string_view kModelPath = "/models/";
  if (rest.starts_with(kModelPath)) {
    return {Endpoint::kModel, std::string(rest.substr(kModelPath.size()))};
  }
  return {};
}

ApiFamily FamilyOf(Endpoint endpoint) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return ApiFamily::kCompletions;
    case Endpoint::kResponses:
      return ApiFamily::kResponses;
    case Endpoint::kMessages:
    case Endpoint::kCountTokens:
      return ApiFamily::kMessages;
    default:
      return ApiFamily::kChat;
  }
}

ApiFamily FamilyOf(const HttpRequest& request) {
  const Endpoint endpoint = RouteOf(request.path).endpoint;
  if (IsPost(endpoint)) return FamilyOf(endpoint);
  std::string_view path = request.path;
  const bool anthropic =
      TakePrefix(path, "/anthropic") || !request.Header("anthropic-version").empty();
  return anthropic ? ApiFamily::kMessages : ApiFamily::kChat;
}

HttpHeaders Server::Impl::CommonHeaders(const HttpRequest& request,
                                        const std::string& request_id) const {
  HttpHeaders headers = CorsHeaders(request, options.cors_origins);
  headers.emplace_back("x-request-id", request_id);
  return headers;
}

void Server::Impl::Refuse(ApiFamily family, const ApiError& error, HttpExchange& exchange,
                          const std::string& request_id) {
  if (error.status == 401) metrics.unauthorized += 1;
  if (error.status == 400 || error.status == 422) metrics.invalid += 1;
  if (error.status == 429 || error.status == 503) metrics.overloaded += 1;
  HttpHeaders headers = CommonHeaders(exchange.request(), request_id);
  headers.emplace_back("content-type", "application/json");
  if (error.retry_after_seconds > 0) {
    headers.emplace_back("retry-after", fmt::format("{:.0f}", error.retry_after_seconds));
  }
  if (error.status == 401) headers.emplace_back("www-authenticate", "Bearer");
  if (error.status == 405) {
    const bool posts = IsPost(RouteOf(exchange.request().path).endpoint);
    headers.emplace_back("allow", posts ? "POST, HEAD, OPTIONS" : "GET, HEAD, OPTIONS");
  }
  LogRefusal(exchange.request().path, error, request_id);
  exchange.Respond(error.status, std::move(headers), ErrorBody(family, error, request_id));
}

HttpErrorAnswer Server::Impl::RefuseUnread(const ApiError& error, const HttpRequest* head) {
  static const HttpRequest kNone;
  const HttpRequest& request = head == nullptr ? kNone : *head;
  const std::string request_id = RequestIdOf(request, NewIds({}).id);
  LogRefusal(request.path, error, request_id);
  return {.headers = CommonHeaders(request, request_id),
          .body = ErrorBody(FamilyOf(request), error, request_id)};
}

void Server::Impl::LogRefusal(std::string_view path, const ApiError& error,
                              const std::string& request_id) const {
  Json event;
  event.Set("event", "refused");
  event.Set("request_id", request_id);
  event.Set("path", std::string(path));
  event.Set("status", error.status);
  event.Set("error", error.message);
  Log(event);
}

void Server::Impl::RespondJson(HttpExchange& exchange, const Json& body,
                               const std::string& request_id) {
  HttpHeaders headers = CommonHeaders(exchange.request(), request_id);
  headers.emplace_back("content-type", "application/json");
  exchange.Respond(200, std::move(headers), DumpJson(body, JsonStyle::kCompact));
}

void Server::Impl::Handle(std::shared_ptr<HttpExchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Clock::time_point arrived = Clock::now();
  const Route route = RouteOf(request.path);
  const ApiFamily family = FamilyOf(request);
  const std::string request_id = RequestIdOf(request, NewIds({}).id);
  // A page of another site could otherwise reach this machine under a name of its own.
  if (IsLoopbackAddress(options.http.address) && !IsLoopbackHost(request.Header("host"))) {
    return Refuse(family,
                  {.status = 403,
                   .message = "This server answers to localhost only; the Host header names "
                              "another machine."},
                  *exchange, request_id);
  }
  if (request.method == "OPTIONS") {
    exchange->Respond(204, CommonHeaders(request, request_id), {});
    return;
  }
  if (route.endpoint == Endpoint::kUnknown) {
    return Refuse(family, NotFound(request.path), *exchange, request_id);
  }
  const bool is_get = request.method == "GET" || request.method == "HEAD";
  if (IsPost(route.endpoint) ? request.method != "POST" && request.method != "HEAD" : !is_get) {
    return Refuse(family,
                  {.status = 405,
                   .message = fmt::format("{} takes {}, not {}.", request.path,
                                          IsPost(route.endpoint) ? "POST" : "GET", request.method)},
                  *exchange, request_id);
  }
  std::string key_name;
  if (!IsOpen(route.endpoint)) {
    ApiResult<std::string> key =
        keys.Check(request.Header("authorization"), request.Header("x-api-key"));
    if (!key) return Refuse(family, key.error(), *exchange, request_id);
    key_name = std::move(*key);
  }
  // Claude Code probes with HEAD before it posts.
  if (!IsPost(route.endpoint) || request.method == "HEAD") {
    return Answer(route, std::move(exchange), request_id);
  }
  const bool taken = workers->Post(request.body.size(), [this, endpoint = route.endpoint, exchange,
                                                         request_id, key_name, arrived] {
    RunRequest(endpoint, exchange, request_id, key_name, arrived);
  });
  if (taken) return;
  Refuse(family,
         {.status = 503,
          .message = "The server has more requests than it can read; try again in a moment.",
          .type = "overloaded_error",
          .code = "overloaded_error",
          .retry_after_seconds = 2},
         *exchange, request_id);
}

void Server::Impl::Answer(const Route& route, std::shared_ptr<HttpExchange> exchange,
                          const std::string& request_id) {
  const HttpRequest& request = exchange->request();
  const auto text = [&](int status, std::string_view type, std::string body) {
    HttpHeaders headers = CommonHeaders(request, request_id);
    headers.emplace_back("content-type", std::string(type));
    exchange->Respond(status, std::move(headers), std::move(body));
  };
  const ModelFacts facts{.created = started_unix,
                         .context_tokens_max = service->engine().info().context_tokens_max};
  switch (route.endpoint) {
    case Endpoint::kPage: {
      const PageFile* file = FindPageFile(route.name);
      CHECK(file != nullptr, "the page itself is missing");
      HttpHeaders headers = CommonHeaders(request, request_id);
      headers.emplace_back("content-type", std::string(file->type));
      // The page shows what a model wrote: nothing but its own files may run or be loaded.
      headers.emplace_back("content-security-policy",
                           "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'");
      headers.emplace_back("x-content-type-options", "nosniff");
      headers.emplace_back("referrer-policy", "no-referrer");
      exchange->Respond(200, std::move(headers), std::string(file->bytes));
      return;
    }
    case Endpoint::kHealth: {
      const bool draining = service->draining();
      return text(draining ? 503 : 200, "application/json",
                  draining ? R"({"status":"draining"})" : R"({"status":"ok"})");
    }
    case Endpoint::kMetrics:
      return text(200, kMetricsContentType, MetricsBody());
    case Endpoint::kState:
      return RespondJson(*exchange, StateBody(), request_id);
    case Endpoint::kModels:
      return RespondJson(*exchange, models.ListBody(facts), request_id);
    case Endpoint::kModel: {
      ApiResult<Json> body = models.EntryBody(route.name, facts);
      if (!body) return Refuse(FamilyOf(request), body.error(), *exchange, request_id);
      return RespondJson(*exchange, *body, request_id);
    }
    case Endpoint::kUsage: {
      ApiResult<std::string> key =
          keys.Check(request.Header("authorization"), request.Header("x-api-key"));
      ApiResult<Json> body = UsageBody(request.query, key ? *key : std::string());
      if (!body) return Refuse(ApiFamily::kChat, body.error(), *exchange, request_id);
      return RespondJson(*exchange, *body, request_id);
    }
    default:  // HEAD of an endpoint that takes POST
      return text(200, "application/json", {});
  }
}

}  // namespace minke
