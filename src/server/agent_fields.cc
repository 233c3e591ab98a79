#include "server/agent_fields.h"

#include <fmt/format.h>

#include "text/request_fields.h"

namespace minke {

std::string BodyText(const Json& object, std::string_view key) {
  const Json* value = BodyMember(object, key);
  return value == nullptr ? std::string() : value->as_string();
}

std::string IdOfTurn(const Json& entry, std::string_view key) {
  const Json* id = BodyMember(entry, key);
  return id != nullptr && id->is_string() ? AnswerIdIn(id->as_string()) : std::string();
}

ApiStatus CheckEntryTypes(const Json& entry, std::string_view path,
                          std::span<const BodyTypeRule> rules) {
  ApiStatus status = CheckBodyTypes(entry, rules);
  if (!status) {
    status.error().message = fmt::format("{}.{}", path, status.error().message);
    status.error().param = fmt::format("{}.{}", path, status.error().param);
  }
  return status;
}

tl::unexpected<ApiError> RefuseMissing(std::string_view path) {
  return RefuseBody(path, fmt::format("Missing required parameter: '{}'.", path));
}

ApiStatus ReadBodyEffort(const Json& effort, std::string_view path, bool mode_is_set,
                         EncodeOptions* options) {
  if (effort.is_string() && effort.as_string() == "none") {
    if (!mode_is_set) options->thinking_mode = ThinkingMode::kChat;
    return {};
  }
  const std::optional<int> number = ReasoningEffort(effort);
  if (!number.has_value()) {
    return RefuseBody(path,
                      fmt::format("{} must be none, minimal, low, medium, high, xhigh, max, "
                                  "ultra or an integer from {} to {}, but it is {}.",
                                  path, kReasoningEffortMin, kReasoningEffortMax,
                                  RequestFields::Quote(DumpJson(effort, JsonStyle::kCompact))));
  }
  options->reasoning_effort = *number;
  return {};
}

ChatMessage& FirstSystemMessage(ChatRequest* chat) {
  std::vector<ChatMessage>& messages = chat->messages;
  if (messages.empty() || messages[0].role != Role::kSystem) {
    messages.insert(messages.begin(), ChatMessage{.role = Role::kSystem});
  }
  return messages[0];
}

std::string StreamEvent(std::string_view type, const Json& event) {
  return fmt::format("event: {}\ndata: {}\n\n", type, DumpJson(event, JsonStyle::kCompact));
}

}  // namespace minke
