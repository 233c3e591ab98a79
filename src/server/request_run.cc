// A request from its body to the engine's queue.
#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "server/messages_api.h"
#include "server/server_impl.h"
#include "text/chat_encoding.h"

namespace minke {
namespace {

// SplitMix64: ids need to be different from each other, not secret.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

ApiResult<ApiRequest> ReadBody(Endpoint endpoint, const Json& body, const ApiReadOptions& options) {
  switch (endpoint) {
    case Endpoint::kCompletions:
      return ReadCompletionsRequest(body, options);
    case Endpoint::kResponses:
      return ReadResponsesRequest(body, options);
    case Endpoint::kMessages:
    case Endpoint::kCountTokens:
      return ReadMessagesRequest(body, options);
    default:
      return ReadChatRequest(body, options);
  }
}

ApiError OfSubmission(const Error& error) {
  if (error.code != ErrorCode::kLimit) return BadRequest(error);
  return {.status = 503,
          .message = error.message,
          .type = "overloaded_error",
          .code = "overloaded_error",
          .retry_after_seconds = 5};
}

// What the page groups answers by: the client's own name for its conversation.
std::string ConversationOf(const HttpRequest& request) {
  constexpr size_t kBytesMax = 64;
  for (const std::string_view name : {"x-session-id", "x-claude-code-session-id", "session-id",
                                      "thread-id", "x-session-affinity"}) {
    const std::string_view value = request.Header(name);
    if (!value.empty()) return std::string(value.substr(0, kBytesMax));
  }
  return {};
}

}  // namespace

AnswerIds Server::Impl::NewIds(const std::string& model) {
  uint64_t number = 0;
  {
    const std::scoped_lock lock(mutex);
    number = ids_made++;
  }
  AnswerIds ids;
  ids.id = fmt::format("{:016x}{:016x}", Mix(id_seed + number), Mix(~id_seed - number));
  ids.created = static_cast<int64_t>(std::time(nullptr));
  ids.model = model;
  ids.fingerprint = "minke-" + options.version;
  return ids;
}

// A continued answer is left out: its client may have written the beginning.
TurnPlace Server::Impl::PlaceOf(const ApiRequest& request,
                                const std::vector<int32_t>& prompt) const {
  TurnPlace place;
  if (request.family == ApiFamily::kCompletions || request.chat.messages.empty() ||
      request.chat.messages.back().wo_eos) {
    return place;
  }
  const auto header = std::find(prompt.rbegin(), prompt.rend(), turn_tokens.assistant);
  if (header == prompt.rend()) return place;
  place.kept = true;
  place.prompt_end.assign(header.base() - 1, prompt.end());
  place.tokens = turn_tokens;
  return place;
}

ApiResult<ApiRequest> Server::Impl::ReadRequest(Endpoint endpoint, const std::string& body) const {
  const Result<Json> json = ParseJson(body, "The request's body", {.reject_duplicate_keys = false});
  if (!json) return tl::unexpected(BadRequest(json.error()));
  return ReadBody(endpoint, *json, {.strict_reasoning = options.strict_reasoning});
}

ApiResult<std::vector<int32_t>> Server::Impl::EncodeRequest(const ApiRequest& request) const {
  Result<Prompt> prompt = request.family == ApiFamily::kCompletions
                              ? Result<Prompt>(CompletionPrompt(request))
                              : EncodeChat(request.chat);
  if (!prompt) return tl::unexpected(BadRequest(prompt.error()));
  if (!prompt->images.empty()) {
    return tl::unexpected(
        ApiError{.message = "This model reads no images; send the request without them.",
                 .param = "messages"});
  }
  Result<std::vector<int32_t>> ids = service->engine().PromptIds(*prompt);
  if (!ids) return tl::unexpected(BadRequest(ids.error()));
  return std::move(*ids);
}

void Server::Impl::RunRequest(Endpoint endpoint, const std::shared_ptr<HttpExchange>& exchange,
                              const std::string& request_id, const std::string& key_name,
                              Clock::time_point arrived) {
  if (exchange->gone()) return;
  const ApiFamily family = FamilyOf(endpoint);
  const std::string body = exchange->TakeBody();
  if (options.log_prompts) {
    Json event;
    event.Set("event", "request");
    event.Set("request_id", request_id);
    event.Set("body", body);
    Log(event);
  }
  ApiResult<ApiRequest> request = ReadRequest(endpoint, body);
  if (!request) return Refuse(family, request.error(), *exchange, request_id);
  const ApiResult<const ModelEntry*> model = models.Resolve(request->model);
  if (!model) return Refuse(family, model.error(), *exchange, request_id);
  const std::string tenant = TenantOf(key_name, request->user_id);
  ReplayReport replay;
  if (family != ApiFamily::kCompletions) {
    replay = turns.Apply(tenant, &request->chat);
    metrics.replayed_turns += replay.found;
    metrics.unreplayed_turns += replay.missing;
  }
  ApiResult<std::vector<int32_t>> prompt = EncodeRequest(*request);
  if (!prompt) return Refuse(family, prompt.error(), *exchange, request_id);
  const auto prompt_tokens = static_cast<int64_t>(prompt->size());
  if (endpoint == Endpoint::kCountTokens) {
    HttpHeaders headers = CommonHeaders(exchange->request(), request_id);
    headers.emplace_back("content-type", "application/json");
    exchange->Respond(200, std::move(headers), CountTokensBody(prompt_tokens));
    return;
  }
  const ApiResult<int64_t> max_tokens =
      ResolveMaxTokens(*request, prompt_tokens, service->engine().info().context_tokens_max);
  if (!max_tokens) return RefuseLength(*request, max_tokens.error(), *exchange, request_id);
  request->max_tokens = *max_tokens;

  AnswerJob job;
  job.ids = NewIds((*model)->id);
  job.ids.request_id = request_id;
  if (!request->has_seed) request->sampling.seed = Mix(std::hash<std::string>()(job.ids.id));
  job.place = PlaceOf(*request, *prompt);
  job.place.tenant = tenant;
  job.place.answer_id = job.ids.id;
  job.place.conversation = replay.conversation;
  job.request = std::move(*request);
  job.request_id = request_id;
  job.key_name = key_name;
  job.conversation = ConversationOf(exchange->request());
  job.headers = CommonHeaders(exchange->request(), request_id);
  job.prompt_tokens = prompt_tokens;
  job.keep_alive_comments = options.keep_alive_comments;
  job.keep_alive_seconds = options.keep_alive_seconds;
  job.arrived = arrived;
  Submit(std::move(job), std::move(*prompt), tenant, exchange);
}

// Codex shortens its history after a failed response in the stream, not after a 400.
void Server::Impl::RefuseLength(const ApiRequest& request, const ApiError& error,
                                HttpExchange& exchange, const std::string& request_id) {
  if (request.family != ApiFamily::kResponses || !request.stream) {
    return Refuse(request.family, error, exchange, request_id);
  }
  metrics.invalid += 1;
  HttpHeaders headers = CommonHeaders(exchange.request(), request_id);
  headers.emplace_back("content-type", "text/event-stream; charset=utf-8");
  headers.emplace_back("cache-control", "no-cache");
  exchange.Respond(200, std::move(headers),
                   NewResponsesWriter(request, NewIds(request.model))->Error(error));
}

void Server::Impl::Submit(AnswerJob job, std::vector<int32_t> prompt, const std::string& tenant,
                          const std::shared_ptr<HttpExchange>& exchange) {
  ServiceRequest request;
  request.prompt = std::move(prompt);
  request.sampling = job.request.sampling;
  request.max_tokens = job.request.max_tokens;
  request.tenant = tenant;
  auto task = std::make_shared<AnswerTask>(*this, std::move(job), exchange);
  const Result<RequestId> id = service->Submit(std::move(request), SinkOf(task));
  if (!id) return task->Refuse(OfSubmission(id.error()));
  {
    const std::scoped_lock lock(mutex);
    live.push_back(task);
  }
  task->Begin();
  exchange->OnGone([this, number = *id] { service->Cancel(number); });
}

}  // namespace minke
