// What the agents' families, Responses and Messages, read and write alike.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/json.h"
#include "server/api.h"
#include "server/api_fields.h"
#include "text/chat_encoding.h"

namespace minke {

// A member that is a text, or "" where it is missing. REQUIRES that its type was checked.
std::string BodyText(const Json& object, std::string_view key);

// The id of the answer that an entry of a client's history came from, by this member of it; empty
// where the member is missing or not one of ours.
std::string IdOfTurn(const Json& entry, std::string_view key);

// CheckBodyTypes() of one entry of a list whose entries differ; errors name its place.
ApiStatus CheckEntryTypes(const Json& entry, std::string_view path,
                          std::span<const BodyTypeRule> rules);

// "Missing required parameter: 'input[3].call_id'."
tl::unexpected<ApiError> RefuseMissing(std::string_view path);

// Switches thinking on with this effort. "none" switches it off unless `mode_is_set`: a mode that
// was said in so many words goes before (serving.md 1.4).
ApiStatus ReadBodyEffort(const Json& effort, std::string_view path, bool mode_is_set,
                         EncodeOptions* options);

// The system message at the beginning, where tools and response formats stand; made if missing.
ChatMessage& FirstSystemMessage(ChatRequest* chat);

// An event of a stream: `type` as its name and as the first member of `event`.
std::string StreamEvent(std::string_view type, const Json& event);

inline constexpr std::string_view kKeepAliveComment = ": keep-alive\n\n";
inline constexpr std::string_view kKeepAliveBlank = "\n";  // before a body that is still to come

}  // namespace minke
