// Tools and tool_choice of a Responses request (serving.md 4.1).
#pragma once

#include "core/json.h"
#include "server/api.h"

namespace minke {

// Functions are shown as they are; those of a namespace as "namespace::name"; custom tools, whose
// input is free text, as functions with the one parameter "input". Tools that a service would have
// to bring itself (web_search, ...) are left out without a word, as agents declare them anyway.
// REQUIRES that request->chat holds the messages and the thinking mode.
ApiStatus ReadResponsesTools(const Json& body, ApiRequest* request);

}  // namespace minke
