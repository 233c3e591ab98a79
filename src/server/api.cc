#include "server/api.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace minke {

namespace {

// The types of Anthropic's errors follow from the status.
std::string_view MessagesErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 402:
      return "billing_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

// The words that agents look for before they shorten their history (serving.md 1.6, 4.2).
ApiError ContextOverflow(ApiFamily family, int64_t prompt_tokens, int64_t max_tokens,
                         int64_t context_tokens_max) {
  ApiError error;
  error.code = "context_length_exceeded";
  if (family == ApiFamily::kMessages) {
    error.message = fmt::format("input length and `max_tokens` exceed context limit: {} + {} > {}",
                                prompt_tokens, max_tokens, context_tokens_max);
    return error;
  }
  error.message = fmt::format(
      "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in "
      "the messages, {} in the completion). Please reduce the length of the messages or "
      "completion.",
      context_tokens_max, prompt_tokens + max_tokens, prompt_tokens, max_tokens);
  return error;
}

// The place that a message of the request reader begins with, e.g. "messages[3].content", or
// nothing where it begins with a word of a sentence.
std::string_view LeadingPlace(std::string_view message) {
  constexpr std::string_view kPlaces[] = {"messages",        "context",  "tools",
                                          "tool_choice",     "thinking", "response_format",
                                          "reasoning_effort"};
  const std::string_view place = message.substr(0, message.find(' '));
  const std::string_view root = place.substr(0, place.find_first_of(".["));
  const bool known = std::find(std::begin(kPlaces), std::end(kPlaces), root) != std::end(kPlaces);
  return known ? place : std::string_view();
}

}  // namespace

Json ErrorEnvelope(ApiFamily family, const ApiError& error, std::string_view request_id) {
  if (family == ApiFamily::kMessages) {
    Json inner(JsonObject{{"type", std::string(MessagesErrorType(error.status))},
                          {"message", error.message}});
    Json outer(JsonObject{{"type", "error"}, {"error", std::move(inner)}});
    outer.Set("request_id", request_id.empty() ? Json() : Json(std::string(request_id)));
    return outer;
  }
  Json inner(JsonObject{{"message", error.message},
                        {"type", error.type},
                        {"param", error.param.empty() ? Json() : Json(error.param)},
                        {"code", error.code}});
  return Json(JsonObject{{"error", std::move(inner)}});
}

std::string ErrorBody(ApiFamily family, const ApiError& error, std::string_view request_id) {
  return DumpJson(ErrorEnvelope(family, error, request_id), JsonStyle::kCompact);
}

ApiError BadRequest(const Error& error) {
  ApiError refused;
  refused.message = error.message;
  refused.param = std::string(LeadingPlace(error.message));
  return refused;
}

ApiResult<int64_t> ResolveMaxTokens(const ApiRequest& request, int64_t prompt_tokens,
                                    int64_t context_tokens_max) {
  const int64_t room = context_tokens_max - prompt_tokens;
  if (request.max_tokens > 0 && request.max_tokens > room) {
    return tl::unexpected(
        ContextOverflow(request.family, prompt_tokens, request.max_tokens, context_tokens_max));
  }
  if (room < 1) {
    return tl::unexpected(ContextOverflow(request.family, prompt_tokens, 1, context_tokens_max));
  }
  return std::min(request.max_tokens_or_default(), room);
}

Json Usage::Detail() const {
  return Json(JsonObject{
      {"cached_ram_tokens", cache.ram_tokens},
      {"cached_disk_tokens", cache.disk_tokens},
      {"replayed_tokens", cache.replayed_tokens},
      {"computed_tokens", cache.computed_tokens},
      {"cache_tier", cache.tier},
      {"miss_reason", cache.reason},
      {"first_difference", cache.first_difference},
      {"cost", cost},
      {"currency", currency},
      {"queue_seconds", queue_seconds},
      {"prefill_seconds", prefill_seconds},
      {"decode_seconds", decode_seconds},
  });
}

std::string AnswerCallId(ApiFamily family, std::string_view answer_id, int tool_index) {
  const std::string_view prefix = family == ApiFamily::kMessages ? "toolu" : "call";
  return fmt::format("{}_{}_{}", prefix, answer_id, tool_index);
}

std::string AnswerIdIn(std::string_view text) {
  const size_t begin = text.find('_');
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = text.substr(begin + 1);
  const std::string_view id = rest.substr(0, rest.find('_'));
  if (id.size() != kAnswerIdDigits) return {};
  const bool is_hex = id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return is_hex ? std::string(id) : std::string();
}

}  // namespace minke
