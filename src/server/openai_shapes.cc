#include "server/openai_shapes.h"

#include <algorithm>

#include <fmt/format.h>

namespace minke {

std::string SseData(const Json& value) {
  return fmt::format("data: {}\n\n", DumpJson(value, JsonStyle::kCompact));
}

Json OpenAiUsage(const Usage& usage) {
  return Json(JsonObject{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", Json(JsonObject{{"cached_tokens", usage.hit_tokens}})},
      {"completion_tokens_details", Json(JsonObject{{"reasoning_tokens", usage.reasoning_tokens}})},
      {"prompt_cache_hit_tokens", usage.hit_tokens},
      {"prompt_cache_miss_tokens", usage.miss_tokens},
      {"minke", usage.Detail()},
  });
}

std::string_view OpenAiFinishReason(AnswerFinish finish, bool called_tools) {
  switch (finish) {
    case AnswerFinish::kStop:
    case AnswerFinish::kStopString:
      return called_tools ? "tool_calls" : "stop";
    case AnswerFinish::kToolCalls:
      return "tool_calls";
    case AnswerFinish::kLength:
      return "length";
    case AnswerFinish::kOverloaded:
      return "insufficient_system_resource";
  }
  return "stop";
}

double FiniteLogprob(double logprob) {
  // What OpenAI's service gives for the impossible.
  constexpr double kImpossible = -9999;
  return std::max(logprob, kImpossible);
}

}  // namespace minke
