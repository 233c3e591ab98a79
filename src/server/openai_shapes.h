// Shapes that the answers of Chat Completions and Completions share (serving.md 1.5).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "server/api.h"

namespace minke {

// One event of a stream without a name: "data: ...".
std::string SseData(const Json& value);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseComment = ": keep-alive\n\n";

// Both spellings of what was cached, integers always (6.F 96, 97), and Minke's detail.
Json OpenAiUsage(const Usage& usage);

// "stop", "length", "tool_calls", "insufficient_system_resource".
std::string_view OpenAiFinishReason(AnswerFinish finish, bool called_tools);

// JSON has no infinities.
double FiniteLogprob(double logprob);

}  // namespace minke
