// Reads the requests of POST /chat/completions (serving.md 1.4).
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "server/api.h"
#include "server/api_fields.h"

namespace minke {

namespace {

// What is read must be of these types. Members that are accepted and mean nothing here (store,
// metadata, prompt_cache_key, parallel_tool_calls, ...) may be anything.
constexpr BodyTypeRule kChatBodyTypes[] = {
    {"model", kBodyText},
    {"messages", kBodyList},
    {"messages[]", kBodyObject},
    {"messages[].role", kBodyText},
    {"messages[].content", kBodyText | kBodyList},
    {"messages[].content[]", kBodyObject},
    {"messages[].content[].type", kBodyText},
    {"messages[].content[].text", kBodyText},
    {"messages[].content[].image_url", kBodyText | kBodyObject},
    {"messages[].content[].image_url.url", kBodyText},
    {"messages[].reasoning_content", kBodyText},
    {"messages[].prefix", kBodyFlag},
    {"messages[].tool_call_id", kBodyText},
    {"messages[].tool_calls", kBodyList},
    {"messages[].tool_calls[]", kBodyObject},
    {"messages[].tool_calls[].id", kBodyText},
    {"messages[].tool_calls[].type", kBodyText},
    {"messages[].tool_calls[].function", kBodyObject},
    {"messages[].tool_calls[].function.name", kBodyText},
    {"messages[].tool_calls[].function.arguments", kBodyText | kBodyObject},
    {"thinking", kBodyObject},
    {"thinking.type", kBodyText},
    {"reasoning_effort", kBodyText | kBodyInteger},
    {"tools", kBodyList},
    {"tools[]", kBodyObject},
    {"tools[].type", kBodyText},
    {"tools[].function", kBodyObject},
    {"tools[].function.name", kBodyText},
    {"tools[].function.description", kBodyText},
    {"tools[].function.parameters", kBodyObject},
    {"tools[].function.strict", kBodyFlag},
    {"tool_choice", kBodyText | kBodyObject},
    {"tool_choice.type", kBodyText},
    {"tool_choice.function", kBodyObject},
    {"tool_choice.function.name", kBodyText},
    {"response_format", kBodyObject},
    {"response_format.type", kBodyText},
    {"stream", kBodyFlag},
    {"stream_options", kBodyObject},
    {"stream_options.include_usage", kBodyFlag},
    {"stop", kBodyText | kBodyList},
    {"stop[]", kBodyText},
    {"max_tokens", kBodyInteger},
    {"max_completion_tokens", kBodyInteger},
    {"temperature", kBodyNumber},
    {"top_p", kBodyNumber},
    {"presence_penalty", kBodyNumber},
    {"frequency_penalty", kBodyNumber},
    {"seed", kBodyInteger},
    {"n", kBodyInteger},
    {"logprobs", kBodyFlag},
    {"top_logprobs", kBodyInteger},
    {"user_id", kBodyText},
    {"user", kBodyText},
};

// Members of the body that make the prompt; the reader of conversations knows others, which are
// not for clients of an API.
constexpr std::string_view kPromptMembers[] = {"messages",         "tools",       "thinking",
                                               "reasoning_effort", "tool_choice", "response_format",
                                               "drop_thinking"};

class ChatBodyReader {
 public:
  ChatBodyReader(const Json& body, const ApiReadOptions& options)
      : body_(body), options_(options) {}

  ApiResult<ApiRequest> Read() {
    request_.family = ApiFamily::kChat;
    TRY_STATUS(CheckBodyTypes(body_, kChatBodyTypes));
    if (const Json* model = BodyMember(body_, "model")) request_.model = model->as_string();
    TRY_STATUS(CheckEmptyLists());
    TRY_STATUS(ReadConversation());
    TRY_STATUS(CheckRoles());
    TRY_STATUS(CheckToolHistory());
    TRY_STATUS(RefuseImages(request_.chat));
    TRY_STATUS(ReadTools());
    TRY_STATUS(ReadFormat());
    TRY_STATUS(ReadBodySampling(body_, request_.thinking(), &request_));
    TRY_STATUS(ReadLogprobs());
    TRY_STATUS(ReadBodyMaxTokens(body_, {"max_completion_tokens", "max_tokens"}, &request_));
    TRY_STATUS(ReadBodyStop(body_, "stop", &request_.stop_strings));
    TRY_STATUS(ReadBodyStream(body_, &request_));
    TRY_STATUS(ReadBodyUser(body_, {"user_id", "user"}, &request_));
    TRY_STATUS(RefuseSeveralAnswers(body_, "n"));
    return std::move(request_);
  }

 private:
  // What the reader of conversations takes for "nothing", and the hosted service refuses.
  ApiStatus CheckEmptyLists() const {
    const Json* messages = BodyMember(body_, "messages");
    if (messages == nullptr) {
      return RefuseBody("messages", "messages must be a list of messages, but it is missing.");
    }
    if (messages->as_array().empty()) {
      return RefuseBody("messages", "messages must have at least one message, but it is empty.");
    }
    for (size_t i = 0; i < messages->as_array().size(); ++i) {
      const Json* calls = BodyMember(messages->as_array()[i], "tool_calls");
      if (calls == nullptr || !calls->as_array().empty()) continue;
      const std::string place = fmt::format("messages[{}].tool_calls", i);
      return RefuseBody(place,
                        place + " must have at least one call, but it is empty; leave it out.");
    }
    const Json* tools = BodyMember(body_, "tools");
    if (tools != nullptr && tools->as_array().size() > kApiToolsMax) {
      return RefuseBody("tools", fmt::format("tools has {} entries; at most {} are accepted.",
                                             tools->as_array().size(), kApiToolsMax));
    }
    return {};
  }

  ApiStatus ReadConversation() {
    constexpr std::string_view kWhat = "body";
    Json prompt;
    for (const std::string_view key : kPromptMembers) {
      if (const Json* member = BodyMember(body_, key)) prompt.Set(std::string(key), *member);
    }
    Result<ChatRequest> chat = ParseChatRequest(prompt, kWhat, RequestRules::kServer);
    if (!chat) {
      Error error = std::move(chat).error();
      const std::string begin = fmt::format("{}: ", kWhat);
      if (error.message.compare(0, begin.size(), begin) == 0) error.message.erase(0, begin.size());
      return tl::unexpected(BadRequest(error));
    }
    request_.chat = std::move(*chat);
    request_.chat.options.require_reasoning_content = options_.strict_reasoning;
    return {};
  }

  // The model speaks next: after a user, a tool, a system message in mid-conversation, or where it
  // stopped within a message that is to go on.
  ApiStatus CheckRoles() const {
    const std::vector<ChatMessage>& messages = request_.chat.messages;
    const ChatMessage& last = messages.back();
    const bool first_system = last.role == Role::kSystem && messages.size() == 1;
    const bool closed = last.role == Role::kAssistant && !last.wo_eos && last.task.empty();
    if (!first_system && !closed) return {};
    return RefuseBody("messages",
                      "The last message must be a user message, or an assistant message with "
                      "prefix mode on");
  }

  // N calls are followed at once by their N results (serving.md 1.4).
  ApiStatus CheckToolHistory() const {
    const std::vector<ChatMessage>& messages = request_.chat.messages;
    const size_t offset = AddedMessages();
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == Role::kTool) {
        return RefuseBody(fmt::format("messages[{}]", i - offset),
                          "Messages with role 'tool' must be a response to a preceding message "
                          "with 'tool_calls'");
      }
      if (messages[i].tool_calls.empty()) continue;
      const size_t results = messages[i].tool_calls.size();
      TRY_STATUS(CheckToolResults(i, i - offset));
      i += results;
    }
    return {};
  }

  ApiStatus CheckToolResults(size_t caller, size_t shown_index) const {
    const std::vector<ChatMessage>& messages = request_.chat.messages;
    std::unordered_set<std::string_view> open;
    const std::string place = fmt::format("messages[{}].tool_calls", shown_index);
    for (const ToolCall& call : messages[caller].tool_calls) {
      if (call.id.empty()) {
        return RefuseBody(place, place + " must have an id in each call, but one has none.");
      }
      if (!open.insert(call.id).second) {
        return RefuseBody(place,
                          fmt::format("Duplicate value for 'id' of {} in {}", call.id, place));
      }
    }
    const size_t count = open.size();
    for (size_t i = 1; i <= count; ++i) {
      const bool is_result =
          caller + i < messages.size() && messages[caller + i].role == Role::kTool;
      if (!is_result) {
        return RefuseBody(place,
                          "An assistant message with 'tool_calls' must be followed by tool "
                          "messages responding to each 'tool_call_id'. (insufficient tool messages "
                          "following tool_calls message)");
      }
      const std::string& id = messages[caller + i].tool_call_id;
      if (open.erase(id) == 1) continue;
      const std::string result = fmt::format("messages[{}].tool_call_id", shown_index + i);
      if (id.empty()) {
        return RefuseBody(result, result + " must be the id of a call, but it is missing.");
      }
      return RefuseBody(result,
                        "An assistant message with 'tool_calls' must be followed by tool "
                        "messages responding to each 'tool_call_id'. (" +
                            result + " answers no open call)");
    }
    return {};
  }

  // Tools and a format make a system message where the client sent none.
  size_t AddedMessages() const {
    return request_.chat.messages.size() - BodyMember(body_, "messages")->as_array().size();
  }

  ApiStatus ReadTools() {
    const ToolChoice& choice = request_.chat.options.tool_choice;
    using Kind = ToolChoice::Kind;
    std::vector<std::string> names;
    for (const ChatMessage& message : request_.chat.messages) {
      for (const Json& tool : message.tools) {
        names.push_back(tool.Find("name")->as_string());
        TRY_STATUS(CheckToolSchema(tool, names.back()));
      }
    }
    if (choice.kind == Kind::kNone) return {};
    if (choice.kind == Kind::kRequired || choice.kind == Kind::kNamed) {
      if (request_.thinking()) {
        return RefuseBody("tool_choice", "Thinking mode does not support this tool_choice");
      }
      if (names.empty()) {
        return RefuseBody("tool_choice", "tool_choice needs at least one tool in tools.");
      }
    }
    if (choice.kind == Kind::kNamed) {
      if (std::find(names.begin(), names.end(), choice.name) == names.end()) {
        return RefuseBody("tool_choice", "tool_choice names a tool that is not declared in tools.");
      }
      names = {choice.name};
    }
    request_.tools = !names.empty();
    request_.tool_names = std::move(names);
    return {};
  }

  // A schema without a type is taken as that of an object.
  static ApiStatus CheckToolSchema(const Json& tool, const std::string& name) {
    const Json* parameters = BodyMember(tool, "parameters");
    const Json* type = parameters == nullptr ? nullptr : BodyMember(*parameters, "type");
    if (type == nullptr || (type->is_string() && type->as_string() == "object")) return {};
    return RefuseBody("tools", fmt::format("Invalid schema for function '{}': its type must be "
                                           "\"object\"",
                                           name));
  }

  ApiStatus ReadFormat() {
    const Json* format = BodyMember(body_, "response_format");
    const Json* type = format == nullptr ? nullptr : BodyMember(*format, "type");
    request_.json_mode = type != nullptr && type->as_string() == "json_object";
    if (!request_.json_mode || MentionsJson(request_.chat.messages)) return {};
    return RefuseBody("response_format",
                      "Prompt must contain the word 'json' in some form to use 'response_format' "
                      "of type 'json_object'.");
  }

  ApiStatus ReadLogprobs() {
    const bool wanted = BodyFlag(body_, "logprobs");
    int64_t alternatives = 0;
    TRY_STATUS(ReadBodyInteger(body_, "top_logprobs", 0, kLogprobsMax, &alternatives));
    if (!wanted && BodyMember(body_, "top_logprobs") != nullptr) {
      return RefuseBody("top_logprobs", "top_logprobs should be set along with logprobs = true");
    }
    if (wanted) request_.sampling.logprobs = static_cast<int>(alternatives);
    return {};
  }

  const Json& body_;
  const ApiReadOptions& options_;
  ApiRequest request_;
};

}  // namespace

ApiResult<ApiRequest> ReadChatRequest(const Json& body, const ApiReadOptions& options) {
  return ChatBodyReader(body, options).Read();
}

}  // namespace minke
