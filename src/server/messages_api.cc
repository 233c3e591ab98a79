// Reads requests of the Messages API, as Claude Code sends them (serving.md 1.4, 1.5, 4.2). Members
// that mean nothing here (cache_control, context_management, top_k, budget_tokens, service_tier,
// ...) may be anything.
#include "server/messages_api.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "server/agent_fields.h"
#include "server/api.h"
#include "server/messages_input.h"
#include "server/tool_list.h"
#include "text/request_fields.h"

namespace minke {

namespace {

constexpr BodyTypeRule kMessagesRules[] = {
    {"model", kBodyText},
    {"stream", kBodyFlag},
    {"max_tokens", kBodyInteger},
    {"temperature", kBodyNumber},
    {"top_p", kBodyNumber},
    {"presence_penalty", kBodyNumber},
    {"frequency_penalty", kBodyNumber},
    {"seed", kBodyInteger},
    {"stop_sequences", kBodyList},
    {"stop_sequences[]", kBodyText},
    {"thinking", kBodyObject},
    {"thinking.type", kBodyText},
    {"output_config", kBodyObject},
    {"output_config.effort", kBodyText | kBodyInteger},
    {"metadata", kBodyObject},
    {"metadata.user_id", kBodyText},
    {"tools", kBodyList},
    {"tools[]", kBodyObject},
    {"tools[].type", kBodyText},
    {"tools[].name", kBodyText},
    {"tools[].description", kBodyText},
    {"tools[].input_schema", kBodyObject},
    {"tool_choice", kBodyObject},
    {"tool_choice.type", kBodyText},
    {"tool_choice.name", kBodyText},
};

ApiStatus ReadThinking(const Json& body, EncodeOptions* options) {
  const Json* thinking = BodyMember(body, "thinking");
  if (thinking != nullptr) {
    const std::string type = BodyText(*thinking, "type");
    if (type != "enabled" && type != "adaptive" && type != "disabled") {
      return RefuseBody(
          "thinking.type",
          fmt::format("thinking.type must be enabled, adaptive or disabled, but it is "
                      "{}.",
                      type.empty() ? "missing" : RequestFields::Quote(type)));
    }
    options->thinking_mode = type == "disabled" ? ThinkingMode::kChat : ThinkingMode::kThinking;
  }
  const Json* config = BodyMember(body, "output_config");
  const Json* effort = config == nullptr ? nullptr : BodyMember(*config, "effort");
  if (effort == nullptr) return {};
  return ReadBodyEffort(*effort, "output_config.effort", thinking != nullptr, options);
}

// Claude Code puts the user's session into the user's id. A session is not somebody else: with it,
// no conversation could use what the one before it left in the cache.
std::string UserOf(const std::string& user_id) {
  constexpr std::string_view kSessionMember = "session_id";
  constexpr std::string_view kSessionMark = "_session_";
  const Result<Json> parsed = ParseJson(user_id, "metadata.user_id");
  if (parsed && parsed->is_object() && parsed->as_object().size() > 1) {
    JsonObject user;
    for (const JsonMember& member : parsed->as_object()) {
      if (member.first != kSessionMember) user.push_back(member);
    }
    return DumpJson(Json(std::move(user)), JsonStyle::kCompact);
  }
  const size_t mark = user_id.rfind(kSessionMark);
  return mark == std::string::npos || mark == 0 ? user_id : user_id.substr(0, mark);
}

ApiStatus ReadUserId(const Json& body, ApiRequest* request) {
  const Json* metadata = BodyMember(body, "metadata");
  if (metadata == nullptr) return {};
  TRY_STATUS(ReadBodyUser(*metadata, {"user_id"}, request));
  request->user_id = UserOf(request->user_id);
  return {};
}

ApiStatus ReadToolChoice(const Json& body, ToolChoice* choice) {
  const Json* value = BodyMember(body, "tool_choice");
  if (value == nullptr) return {};
  const std::string type = BodyText(*value, "type");
  if (type == "none") {
    choice->kind = ToolChoice::Kind::kNone;
  } else if (type == "tool") {
    choice->kind = ToolChoice::Kind::kNamed;
    choice->name = BodyText(*value, "name");
  } else if (type != "auto" && type != "any") {  // any is taken as auto (serving.md 1.5)
    return RefuseBody("tool_choice.type",
                      fmt::format("tool_choice.type must be auto, any, tool or none, but it is {}.",
                                  type.empty() ? "missing" : RequestFields::Quote(type)));
  }
  return {};
}

// Tools of another type are the other service's own (web search, ...) and left out without a word.
ApiStatus ReadTools(const Json& body, ApiRequest* request) {
  ToolList tools;
  if (const Json* list = BodyMember(body, "tools")) {
    for (size_t i = 0; i < list->as_array().size(); ++i) {
      const Json& tool = list->as_array()[i];
      const std::string type = BodyText(tool, "type");
      if (!type.empty() && type != "custom") continue;
      DeclaredTool declared;
      declared.path = fmt::format("tools[{}]", i);
      declared.name = BodyText(tool, "name");
      declared.description = BodyText(tool, "description");
      declared.parameters = BodyMember(tool, "input_schema");
      TRY_STATUS(tools.Add(declared));
    }
  }
  TRY_STATUS(ReadToolChoice(body, &request->chat.options.tool_choice));
  return tools.MoveInto(request);
}

ApiResult<ApiRequest> ReadMessagesBody(const Json& body, const ApiReadOptions& options) {
  TRY_STATUS(CheckBodyTypes(body, kMessagesRules));
  ApiRequest request;
  request.family = ApiFamily::kMessages;
  request.model = BodyText(body, "model");
  request.stream = BodyFlag(body, "stream");
  EncodeOptions& encode = request.chat.options;
  encode.require_reasoning_content = options.strict_reasoning;
  TRY_STATUS(ReadThinking(body, &encode));
  TRY_STATUS(ReadBodySampling(body, request.thinking(), &request));
  TRY_STATUS(ReadBodyMaxTokens(body, {"max_tokens"}, &request));
  TRY_STATUS(ReadBodyStop(body, "stop_sequences", &request.stop_strings));
  TRY_STATUS(ReadUserId(body, &request));
  request.chat.messages = TRY(ReadMessagesInput(body));
  if (request.chat.messages.size() == 1 && request.chat.messages[0].role == Role::kSystem) {
    return RefuseBody("messages", "messages: at least one user message is required");
  }
  TRY_STATUS(ReadTools(body, &request));
  return request;
}

}  // namespace

ApiResult<ApiRequest> ReadMessagesRequest(const Json& body, const ApiReadOptions& options) {
  ApiResult<ApiRequest> request = ReadMessagesBody(body, options);
  if (!request) request.error().status = 400;  // the family knows no other
  return request;
}

std::string CountTokensBody(int64_t input_tokens) {
  return DumpJson(Json(JsonObject{{"input_tokens", input_tokens}}), JsonStyle::kCompact);
}

}  // namespace minke
