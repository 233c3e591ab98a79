#include "server/responses_input.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "server/agent_fields.h"
#include "server/tool_list.h"
#include "text/request_fields.h"

namespace minke {

namespace {

constexpr BodyTypeRule kMessageRules[] = {
    {"role", kBodyText},           {"content", kBodyText | kBodyList},
    {"content[]", kBodyObject},    {"content[].type", kBodyText},
    {"content[].text", kBodyText}, {"content[].refusal", kBodyText},
};
constexpr BodyTypeRule kReasoningRules[] = {
    {"content", kBodyList},
    {"content[]", kBodyObject},
    {"content[].type", kBodyText},
    {"content[].text", kBodyText},
};
constexpr BodyTypeRule kCallRules[] = {
    {"call_id", kBodyText},   {"name", kBodyText},
    {"namespace", kBodyText}, {"arguments", kBodyText | kBodyObject},
    {"input", kBodyText},     {"action", kBodyObject},
};
constexpr BodyTypeRule kOutputRules[] = {
    {"call_id", kBodyText},       {"output", kBodyText | kBodyList},
    {"output[]", kBodyObject},    {"output[].type", kBodyText},
    {"output[].text", kBodyText}, {"output[].refusal", kBodyText},
};

class InputReader {
 public:
  ApiResult<std::vector<ChatMessage>> Read(const Json& input) {
    if (input.is_string()) {
      ChatMessage message;
      message.content.push_back({.text = input.as_string()});
      messages_.push_back(std::move(message));
      return std::move(messages_);
    }
    const JsonArray& items = input.as_array();
    if (items.empty()) return RefuseBody("input", "input must hold at least one item.");
    if (items.size() > kMessagesMax) {
      return RefuseBody("input", fmt::format("input has {} entries; at most {} are accepted.",
                                             items.size(), kMessagesMax));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      TRY_STATUS(ReadItem(items[i], fmt::format("input[{}]", i)));
    }
    DropUnansweredReasoning();
    for (const std::string& id : call_order_) {
      if (open_calls_[id] == 0) continue;
      return RefuseBody("input", fmt::format("No tool output found for tool call {}.", id));
    }
    if (messages_.empty()) {
      return RefuseBody("input", "input must hold at least one message or tool output.");
    }
    // An assistant's text at the end is the beginning of the answer.
    if (messages_.back().role == Role::kAssistant) messages_.back().wo_eos = true;
    return std::move(messages_);
  }

 private:
  ApiStatus ReadItem(const Json& item, const std::string& path) {
    const std::string type = BodyText(item, "type");
    if (type == "message" || (type.empty() && BodyMember(item, "role") != nullptr)) {
      return ReadMessage(item, path);
    }
    if (type.empty()) return RefuseMissing(path + ".type");
    if (type == "reasoning") return ReadReasoning(item, path);
    if (type == "function_call" || type == "custom_tool_call" || type == "local_shell_call") {
      return ReadCall(item, path, type);
    }
    if (type == "function_call_output" || type == "custom_tool_call_output") {
      return ReadOutput(item, path);
    }
    if (type == "item_reference") {
      return RefuseBody(path, fmt::format("{} refers to a stored item, but this server keeps none; "
                                          "send the item itself.",
                                          path));
    }
    return {};
  }

  // The turn of the assistant that further items join.
  ChatMessage& AssistantTurn() {
    if (messages_.empty() || messages_.back().role != Role::kAssistant) {
      messages_.push_back(ChatMessage{.role = Role::kAssistant});
    }
    return messages_.back();
  }

  void DropUnansweredReasoning() {
    if (messages_.empty() || messages_.back().role != Role::kAssistant) return;
    if (messages_.back().content.empty() && messages_.back().tool_calls.empty()) {
      messages_.pop_back();
    }
  }

  ChatMessage& NewMessage(Role role) {
    DropUnansweredReasoning();
    messages_.push_back(ChatMessage{.role = role});
    return messages_.back();
  }

  // Documents and pictures become words: an answer that refused them would come again on every
  // later turn of the conversation.
  static ApiStatus ReadParts(const Json& content, const std::string& path, ChatMessage* out) {
    if (content.is_string()) {
      out->content.push_back({.text = content.as_string()});
      return {};
    }
    for (size_t i = 0; i < content.as_array().size(); ++i) {
      const Json& part = content.as_array()[i];
      const std::string type = BodyText(part, "type");
      std::string text;
      if (type == "input_text" || type == "output_text" || type == "text") {
        if (BodyMember(part, "text") == nullptr) {
          return RefuseMissing(fmt::format("{}[{}].text", path, i));
        }
        text = BodyText(part, "text");
      } else if (type == "refusal") {
        text = BodyText(part, "refusal");
      } else if (type == "input_file") {
        text = "[Unsupported Document]";
      } else if (type == "input_image") {
        text = "[Unsupported Image]";
      } else if (type.empty()) {
        return RefuseMissing(fmt::format("{}[{}].type", path, i));
      } else {
        text = fmt::format("[Unsupported {}]", type);
      }
      out->content.push_back({.text = std::move(text)});
    }
    return {};
  }

  ApiStatus ReadMessage(const Json& item, const std::string& path) {
    TRY_STATUS(CheckEntryTypes(item, path, kMessageRules));
    const std::string role = BodyText(item, "role");
    const Json* content = BodyMember(item, "content");
    if (content == nullptr) return RefuseMissing(path + ".content");
    ChatMessage* message = nullptr;
    if (role == "assistant") {
      message = &AssistantTurn();
      if (message->turn_id.empty()) message->turn_id = IdOfTurn(item, "id");
    } else if (role == "user" || role == "developer") {
      message = &NewMessage(Role::kUser);
    } else if (role == "system") {
      message = &NewMessage(Role::kSystem);
    } else {
      return RefuseBody(path + ".role",
                        fmt::format("{}.role must be user, assistant, system or developer, but it "
                                    "is {}.",
                                    path, role.empty() ? "missing" : RequestFields::Quote(role)));
    }
    return ReadParts(*content, path + ".content", message);
  }

  ApiStatus ReadReasoning(const Json& item, const std::string& path) {
    TRY_STATUS(CheckEntryTypes(item, path, kReasoningRules));
    ChatMessage& turn = AssistantTurn();
    if (turn.turn_id.empty()) turn.turn_id = IdOfTurn(item, "id");
    const Json* content = BodyMember(item, "content");
    if (content == nullptr) return {};  // another service's, which only it can read
    for (const Json& part : content->as_array()) {
      const std::string text = BodyText(part, "text");
      if (turn.reasoning_content.has_value()) {
        *turn.reasoning_content += "\n" + text;
      } else {
        turn.reasoning_content = text;
      }
    }
    if (!turn.reasoning_content.has_value()) turn.reasoning_content.emplace();
    return {};
  }

  ApiStatus ReadCall(const Json& item, const std::string& path, std::string_view type) {
    TRY_STATUS(CheckEntryTypes(item, path, kCallRules));
    ToolCall call;
    call.id = BodyText(item, "call_id");
    if (call.id.empty()) return RefuseMissing(path + ".call_id");
    call.name = BodyText(item, "name");
    if (type == "local_shell_call") call.name = "local_shell";
    if (call.name.empty()) return RefuseMissing(path + ".name");
    if (call.name.find("::") == std::string::npos) {
      call.name = QualifiedToolName(BodyText(item, "namespace"), call.name);
    }
    const char* key = type == "function_call"      ? "arguments"
                      : type == "custom_tool_call" ? "input"
                                                   : "action";
    const Json* arguments = BodyMember(item, key);
    if (arguments == nullptr) return RefuseMissing(fmt::format("{}.{}", path, key));
    call.arguments = *arguments;
    if (type == "custom_tool_call") call.arguments = Json(JsonObject{{"input", *arguments}});
    if (open_calls_.try_emplace(call.id, 0).second) call_order_.push_back(call.id);
    ++open_calls_[call.id];
    ChatMessage& turn = AssistantTurn();
    if (turn.turn_id.empty()) turn.turn_id = IdOfTurn(item, "id");
    turn.tool_calls.push_back(std::move(call));
    return {};
  }

  ApiStatus ReadOutput(const Json& item, const std::string& path) {
    TRY_STATUS(CheckEntryTypes(item, path, kOutputRules));
    const std::string id = BodyText(item, "call_id");
    if (id.empty()) return RefuseMissing(path + ".call_id");
    const Json* output = BodyMember(item, "output");
    if (output == nullptr) return RefuseMissing(path + ".output");
    const auto call = open_calls_.find(id);
    if (call == open_calls_.end()) {
      return RefuseBody("input", fmt::format("No tool call found for tool output {}.", id));
    }
    if (call->second == 0) {
      return RefuseBody("input", fmt::format("Tool call {} has more than one tool output.", id));
    }
    --call->second;
    ChatMessage& message = NewMessage(Role::kTool);
    message.tool_call_id = id;
    return ReadParts(*output, path + ".output", &message);
  }

  std::vector<ChatMessage> messages_;
  std::unordered_map<std::string, int64_t> open_calls_;  // by id: calls without output so far
  std::vector<std::string> call_order_;                  // ids, as they came
};

}  // namespace

ApiResult<std::vector<ChatMessage>> ReadResponsesInput(const Json& input) {
  return InputReader().Read(input);
}

}  // namespace minke
