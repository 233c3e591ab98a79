// The items of a Responses request as messages (serving.md 1.5, 4.1).
#pragma once

#include <string_view>
#include <vector>

#include "core/json.h"
#include "server/api.h"

namespace minke {

// `input`: a text, or a list of items. Consecutive items of the assistant make one turn: reasoning
// joined by newlines, texts by blank lines, calls in their order. Developers speak as users do;
// items of unknown types are left out, because agents send more of them with every version.
// Reasoning that no answer follows belongs to an answer that was broken off, and is left out.
ApiResult<std::vector<ChatMessage>> ReadResponsesInput(const Json& input);

}  // namespace minke
