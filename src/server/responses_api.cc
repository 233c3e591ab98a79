// Reads requests of the Responses API, as Codex sends them (serving.md 1.4, 1.5, 4.1). Nothing is
// kept between requests: what refers to an earlier answer is refused.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "server/agent_fields.h"
#include "server/api.h"
#include "server/responses_input.h"
#include "server/responses_tools.h"
#include "text/request_fields.h"

namespace minke {

namespace {

constexpr BodyTypeRule kResponsesRules[] = {
    {"model", kBodyText},
    {"input", kBodyText | kBodyList},
    {"input[]", kBodyObject},
    {"input[].type", kBodyText},
    {"instructions", kBodyText},
    {"stream", kBodyFlag},
    {"store", kBodyFlag},
    {"background", kBodyFlag},
    {"parallel_tool_calls", kBodyFlag},
    {"previous_response_id", kBodyText},
    {"include", kBodyList},
    {"include[]", kBodyText},
    {"reasoning", kBodyObject},
    {"reasoning.effort", kBodyText | kBodyInteger},
    {"text", kBodyObject},
    {"text.format", kBodyObject},
    {"text.format.type", kBodyText},
    {"temperature", kBodyNumber},
    {"top_p", kBodyNumber},
    {"presence_penalty", kBodyNumber},
    {"frequency_penalty", kBodyNumber},
    {"seed", kBodyInteger},
    {"max_output_tokens", kBodyInteger},
    {"metadata", kBodyObject},
    {"user", kBodyText},
};

// What a server without memory cannot do.
ApiStatus RefuseStored(const Json& body) {
  for (const char* key : {"previous_response_id", "conversation", "prompt"}) {
    if (BodyMember(body, key) == nullptr) continue;
    return RefuseBody(key, fmt::format("{} is not supported: this server keeps no responses. Send "
                                       "the whole conversation as input.",
                                       key));
  }
  if (!BodyFlag(body, "background")) return {};
  return RefuseBody("background",
                    "background is not supported: this server keeps no responses. Use stream.");
}

ApiStatus ReadReasoning(const Json& body, EncodeOptions* options) {
  const Json* reasoning = BodyMember(body, "reasoning");
  const Json* effort = reasoning == nullptr ? nullptr : BodyMember(*reasoning, "effort");
  if (effort == nullptr) return {};
  return ReadBodyEffort(*effort, "reasoning.effort", false, options);
}

ApiStatus ReadTextFormat(const Json& body, ApiRequest* request) {
  const Json* text = BodyMember(body, "text");
  const Json* format = text == nullptr ? nullptr : BodyMember(*text, "format");
  const Json* type = format == nullptr ? nullptr : BodyMember(*format, "type");
  if (type == nullptr) return {};
  const std::string& name = type->as_string();
  // A schema is accepted and not enforced, as the hosted service does (serving.md 1.4).
  if (name == "text" || name == "json_schema") return {};
  if (name != "json_object") {
    return RefuseBody("text.format.type",
                      fmt::format("text.format.type must be text, json_object or json_schema, but "
                                  "it is {}.",
                                  RequestFields::Quote(name)));
  }
  if (!MentionsJson(request->chat.messages)) {
    return RefuseBody(
        "input",
        "The messages must contain the word 'json' in some form, to use 'text.format' "
        "of type 'json_object'.");
  }
  request->json_mode = true;
  FirstSystemMessage(&request->chat).response_format = Json(JsonObject{{"type", name}});
  return {};
}

// The members of a request that its answer repeats, with what holds where nothing was said.
Json EchoFields(const Json& body, const ApiRequest& request) {
  const auto said = [&body](std::string_view key, const Json& otherwise) {
    const Json* value = BodyMember(body, key);
    return value == nullptr ? otherwise : *value;
  };
  const Json* reasoning = BodyMember(body, "reasoning");
  const auto of_reasoning = [reasoning](std::string_view key, const Json& otherwise) {
    const Json* value = reasoning == nullptr ? nullptr : BodyMember(*reasoning, key);
    return value == nullptr ? otherwise : *value;
  };
  Json text = said("text", JsonObject());
  if (BodyMember(text, "format") == nullptr) {
    text.Set("format", Json(JsonObject{{"type", "text"}}));
  }
  return Json(JsonObject{
      {"background", false},
      {"instructions", said("instructions", nullptr)},
      {"max_output_tokens", said("max_output_tokens", nullptr)},
      {"metadata", said("metadata", JsonObject())},
      {"parallel_tool_calls", said("parallel_tool_calls", true)},
      {"previous_response_id", nullptr},
      {"prompt_cache_key", said("prompt_cache_key", nullptr)},
      {"reasoning", Json(JsonObject{{"effort", of_reasoning("effort", "high")},
                                    {"summary", of_reasoning("summary", nullptr)}})},
      {"service_tier", "default"},
      {"store", false},
      {"temperature", said("temperature", request.sampling.temperature)},
      {"text", std::move(text)},
      {"tool_choice", said("tool_choice", "auto")},
      {"tools", said("tools", JsonArray())},
      {"top_p", said("top_p", request.sampling.top_p)},
      {"truncation", "disabled"},
      {"user", said("user", nullptr)},
  });
}

}  // namespace

ApiResult<ApiRequest> ReadResponsesRequest(const Json& body, const ApiReadOptions& options) {
  TRY_STATUS(CheckBodyTypes(body, kResponsesRules));
  ApiRequest request;
  request.family = ApiFamily::kResponses;
  request.model = BodyText(body, "model");
  if (BodyMember(body, "input") == nullptr) return RefuseMissing("input");
  TRY_STATUS(RefuseStored(body));
  request.stream = BodyFlag(body, "stream");
  EncodeOptions& encode = request.chat.options;
  encode.require_reasoning_content = options.strict_reasoning;
  TRY_STATUS(ReadReasoning(body, &encode));
  TRY_STATUS(ReadBodySampling(body, request.thinking(), &request));
  TRY_STATUS(ReadBodyMaxTokens(body, {"max_output_tokens"}, &request));
  TRY_STATUS(ReadBodyUser(body, {"user"}, &request));
  request.chat.messages = TRY(ReadResponsesInput(*BodyMember(body, "input")));
  const Json* instructions = BodyMember(body, "instructions");
  if (instructions != nullptr && !instructions->as_string().empty()) {
    ChatMessage system{.role = Role::kSystem};
    system.content.push_back({.text = instructions->as_string()});
    request.chat.messages.insert(request.chat.messages.begin(), std::move(system));
  }
  if (request.chat.messages.size() == 1 && request.chat.messages[0].role == Role::kSystem) {
    return RefuseBody("input", "input must hold a message besides the system's.");
  }
  TRY_STATUS(ReadTextFormat(body, &request));
  TRY_STATUS(ReadResponsesTools(body, &request));
  request.echo_fields = EchoFields(body, request);
  return request;
}

}  // namespace minke
