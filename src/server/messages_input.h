// System prompt and messages of a Messages request as messages of a conversation (serving.md 1.5,
// 4.2).
#pragma once

#include <vector>

#include "core/json.h"
#include "server/api.h"

namespace minke {

// Reads "system" and "messages". A system message in mid-conversation becomes a reminder in the
// user's turn. Thinking is taken without a look at its signature. Every tool_use is answered by one
// tool_result before the assistant speaks again; the errors are worded as agents know them.
ApiResult<std::vector<ChatMessage>> ReadMessagesInput(const Json& body);

}  // namespace minke
