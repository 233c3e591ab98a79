// Reads requests: JSON to ChatRequest, every error naming its place.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>

#include "text/chat_encoding.h"
#include "text/chat_tools.h"
#include "text/request_fields.h"

namespace minke {

namespace {

constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority",
                                                    "domain", "title", "read_url"};

class RequestReader : private RequestFields {
 public:
  RequestReader(std::string_view what, RequestRules rules)
      : RequestFields(what), rules_(rules), tools_(what, rules) {}

  Result<ChatRequest> Read(const Json& value) {
    request_.options.drop_thinking = official();
    if (value.is_array()) {
      TRY_STATUS(ReadMessages(value, "messages", &request_.messages));
      return std::move(request_);
    }
    if (!value.is_object()) {
      return Refuse("the request", "a list of messages or an object with \"messages\"", value);
    }
    const Json* messages = value.Find("messages");
    if (messages == nullptr) return RefuseText("messages", "a list of messages", "missing");
    TRY_STATUS(ReadMessages(*messages, "messages", &request_.messages));
    if (const Json* context = Present(value, "context")) {
      TRY_STATUS(ReadMessages(*context, "context", &request_.context));
    }
    TRY_STATUS(ReadOptions(value));
    TRY_STATUS(ReadTopLevelTools(value));
    return std::move(request_);
  }

 private:
  bool official() const { return rules_ == RequestRules::kOfficialEncoder; }

  // ---- messages ----------------------------------------------------------------------------

  Status ReadMessages(const Json& list, const std::string& path, std::vector<ChatMessage>* out) {
    if (!list.is_array()) return Refuse(path, "a list of messages", list);
    if (list.as_array().size() > kMessagesMax) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("{}: {} has {} entries; at most {} are accepted.", what(), path,
                              list.as_array().size(), kMessagesMax));
    }
    for (size_t i = 0; i < list.as_array().size(); ++i) {
      const Json& message = list.as_array()[i];
      const std::string place = fmt::format("{}[{}]", path, i);
      if (!message.is_object()) return Refuse(place, "an object", message);
      if (official()) TRY_STATUS(RefusePlaceholder(message, place));
      ChatMessage read;
      TRY_STATUS(ReadMessage(message, place, &read));
      bool prefix = false;
      if (!official()) TRY_STATUS(ReadFlag(message, place, "prefix", &prefix));
      if (prefix && (i + 1 != list.as_array().size() || read.role != Role::kAssistant)) {
        return RefuseText(place + ".prefix", "on the last message, which is the assistant's",
                          "elsewhere");
      }
      read.wo_eos = read.wo_eos || prefix;
      out->push_back(std::move(read));
    }
    return {};
  }

  // The official encoder cannot tell typed placeholders from its own and refuses them everywhere.
  Status RefusePlaceholder(const Json& value, const std::string& path) const {
    if (value.is_string() && value.as_string().find(kImageToken) != std::string::npos) {
      return RefuseText(path, fmt::format("free of {}", kImageToken), "not");
    }
    if (value.is_array()) {
      for (const Json& item : value.as_array()) TRY_STATUS(RefusePlaceholder(item, path));
    }
    if (value.is_object()) {
      for (const JsonMember& member : value.as_object()) {
        TRY_STATUS(RefusePlaceholder(Json(member.first), path));
        TRY_STATUS(RefusePlaceholder(member.second, path));
      }
    }
    return {};
  }

  Status ReadRole(const Json& message, const std::string& path, Role* role) const {
    std::string name;
    TRY_STATUS(ReadText(message, path, "role", &name));
    if (name == "system" || (name == "developer" && !official())) {
      *role = Role::kSystem;
    } else if (name == "user") {
      *role = Role::kUser;
    } else if (name == "assistant") {
      *role = Role::kAssistant;
    } else if (name == "tool") {
      *role = Role::kTool;
    } else if (name == "latest_reminder") {
      *role = Role::kLatestReminder;
    } else {
      return RefuseText(path + ".role", "system, user, assistant, tool or latest_reminder",
                        name.empty() ? "missing" : Quote(name));
    }
    return {};
  }

  Status ReadMessage(const Json& message, const std::string& path, ChatMessage* out) {
    TRY_STATUS(ReadRole(message, path, &out->role));
    TRY_STATUS(ReadContent(message, path, out));
    if (Present(message, "reasoning_content") != nullptr) {
      std::string reasoning;
      TRY_STATUS(ReadText(message, path, "reasoning_content", &reasoning));
      out->reasoning_content = std::move(reasoning);
    }
    if (const Json* calls = Present(message, "tool_calls")) {
      TRY_STATUS(tools_.ReadToolCalls(*calls, path + ".tool_calls", out));
    }
    TRY_STATUS(ReadText(message, path, "tool_call_id", &out->tool_call_id));
    TRY_STATUS(ReadText(message, path, "task", &out->task));
    if (!out->task.empty() && std::find(kTasks.begin(), kTasks.end(), out->task) == kTasks.end()) {
      return RefuseText(path + ".task", "action, query, authority, domain, title or read_url",
                        Quote(out->task));
    }
    TRY_STATUS(ReadFlag(message, path, "wo_eos", &out->wo_eos));
    const Json* tools = Present(message, "tools");
    const Json* format = Present(message, "response_format");
    if (out->role != Role::kSystem && (tools != nullptr || format != nullptr)) {
      return RefuseText(path + (tools != nullptr ? ".tools" : ".response_format"),
                        "in a system message", "in another");
    }
    if (tools != nullptr) TRY_STATUS(tools_.ReadTools(*tools, path + ".tools", &out->tools));
    if (format != nullptr) out->response_format = *format;
    return {};
  }

  Status ReadContent(const Json& message, const std::string& path, ChatMessage* out) const {
    const std::string place = path + ".content";
    const Json* content = Present(message, "content");
    if (content == nullptr) {
      const bool may_lack =
          out->role == Role::kSystem || (out->role == Role::kAssistant &&
                                         (official() || Present(message, "tool_calls") != nullptr ||
                                          Present(message, "reasoning_content") != nullptr));
      if (may_lack) return {};
      return RefuseText(place, "a string or a list of blocks",
                        message.Find("content") == nullptr ? "missing" : "null");
    }
    if (content->is_string()) {
      out->content.push_back({.text = content->as_string()});
      return {};
    }
    if (!content->is_array()) return Refuse(place, "a string or a list of blocks", *content);
    for (size_t i = 0; i < content->as_array().size(); ++i) {
      TRY_STATUS(ReadBlock(content->as_array()[i], fmt::format("{}[{}]", place, i), out));
    }
    return {};
  }

  Status ReadBlock(const Json& block, const std::string& path, ChatMessage* out) const {
    if (!block.is_object()) return Refuse(path, "an object", block);
    std::string type;
    TRY_STATUS(ReadText(block, path, "type", &type));
    if (type.empty()) return RefuseText(path + ".type", "a string", "missing");
    ContentPart part;
    if (type == "text") {
      if (Present(block, "text") == nullptr) {
        return RefuseText(path + ".text", "a string", "missing");
      }
      TRY_STATUS(ReadText(block, path, "text", &part.text));
    } else if (type == "image" || type == "image_url") {
      if (out->role != Role::kUser && out->role != Role::kTool) {
        return RefuseText(path, "text: images belong in user and tool messages", "an image");
      }
      part.kind = ContentPart::Kind::kImage;
      TRY_STATUS(ReadImage(block, path, &part.image));
    } else {
      part.kind = ContentPart::Kind::kUnsupported;
      part.text = type;
    }
    out->content.push_back(std::move(part));
    return {};
  }

  Status ReadImage(const Json& block, const std::string& path, Json* image) const {
    image->Set("type", "image");
    if (const Json* source = Present(block, "source")) {
      image->Set("source", *source);
      return {};
    }
    const Json* holder = Present(block, "image_url");
    std::string place = path + ".image_url";
    if (holder == nullptr) {
      holder = &block;
      place = path;
    }
    std::string url;
    if (holder->is_string()) {
      url = holder->as_string();
    } else if (holder->is_object()) {
      TRY_STATUS(ReadText(*holder, place, "url", &url));
    } else {
      return Refuse(place, "an object with a \"url\"", *holder);
    }
    if (url.empty()) return RefuseText(path, "an image with a \"url\" or a \"source\"", "without");
    image->Set("url", std::move(url));
    return {};
  }

  // ---- options -----------------------------------------------------------------------------

  Status ReadOptions(const Json& value) {
    EncodeOptions& options = request_.options;
    bool mode_is_set = false;
    std::string mode;
    TRY_STATUS(ReadText(value, "", "thinking_mode", &mode));
    if (mode == "chat" || mode == "thinking") {
      mode_is_set = true;
      options.thinking_mode = mode == "chat" ? ThinkingMode::kChat : ThinkingMode::kThinking;
    } else if (!mode.empty()) {
      return RefuseText("thinking_mode", "\"chat\" or \"thinking\"", Quote(mode));
    }
    if (const Json* thinking = official() ? nullptr : Present(value, "thinking")) {
      std::string type;
      if (!thinking->is_object()) return Refuse("thinking", "an object", *thinking);
      TRY_STATUS(ReadText(*thinking, "thinking", "type", &type));
      if (type != "enabled" && type != "disabled" && type != "adaptive") {
        return RefuseText("thinking.type", "\"enabled\", \"disabled\" or \"adaptive\"",
                          Quote(type));
      }
      mode_is_set = true;
      options.thinking_mode = type == "disabled" ? ThinkingMode::kChat : ThinkingMode::kThinking;
    }
    if (const Json* effort = Present(value, "reasoning_effort")) {
      const bool none = !official() && effort->is_string() && effort->as_string() == "none";
      if (none && !mode_is_set) options.thinking_mode = ThinkingMode::kChat;
      if (!none) TRY_STATUS(ReadEffort(*effort));
    }
    TRY_STATUS(ReadFlag(value, "", "drop_thinking", &options.drop_thinking));
    return ReadFlag(value, "", "add_default_bos_token", &options.add_default_bos_token);
  }

  Status ReadEffort(const Json& value) {
    const std::optional<int> effort = ReasoningEffort(value, rules_);
    if (!effort.has_value()) {
      return RefuseText("reasoning_effort",
                        official() ? "low, high, max or an integer from 1 to 100"
                                   : "none, minimal, low, medium, high, xhigh, max, ultra or an "
                                     "integer from 1 to 100",
                        Quote(DumpJson(value, JsonStyle::kCompact)));
    }
    request_.options.reasoning_effort = *effort;
    return {};
  }

  Status ReadToolChoice(const Json& value) {
    ToolChoice& choice = request_.options.tool_choice;
    if (value.is_string()) {
      const std::string& name = value.as_string();
      if (name == "auto") return {};
      if (name == "none" || name == "required") {
        choice.kind = name == "none" ? ToolChoice::Kind::kNone : ToolChoice::Kind::kRequired;
        return {};
      }
      return RefuseText("tool_choice", "none, auto, required or an object", Quote(name));
    }
    choice.kind = ToolChoice::Kind::kNamed;
    return tools_.ReadFunction(value, "tool_choice", &choice.name).map([](const Json*) {});
  }

  // Tools and the response format stand in the system message at the beginning, which is made
  // where there is none.
  ChatMessage& FirstSystemMessage() {
    std::vector<ChatMessage>& first =
        request_.context.empty() ? request_.messages : request_.context;
    if (first.empty() || first[0].role != Role::kSystem) {
      first.insert(first.begin(), ChatMessage{.role = Role::kSystem});
    }
    return first[0];
  }

  Status ReadTopLevelTools(const Json& value) {
    if (official()) return {};
    if (const Json* choice = Present(value, "tool_choice")) TRY_STATUS(ReadToolChoice(*choice));
    if (const Json* list = Present(value, "tools")) {
      std::vector<Json> tools;
      TRY_STATUS(tools_.ReadTools(*list, "tools", &tools));
      const bool shown = request_.options.tool_choice.kind != ToolChoice::Kind::kNone;
      if (!tools.empty() && shown) {
        ChatMessage& system = FirstSystemMessage();
        std::move(tools.begin(), tools.end(), std::back_inserter(system.tools));
      }
    }
    const Json* format = Present(value, "response_format");
    if (format == nullptr) return {};
    if (!format->is_object()) return Refuse("response_format", "an object", *format);
    std::string type;
    TRY_STATUS(ReadText(*format, "response_format", "type", &type));
    if (type == "json_object") {
      Json shown;
      shown.Set("type", type);
      FirstSystemMessage().response_format = shown;
      return {};
    }
    // A schema is accepted but not enforced or shown, as the hosted service does.
    if (type == "text" || type == "json_schema") return {};
    return RefuseText("response_format.type", "text, json_object or json_schema", Quote(type));
  }

  RequestRules rules_;
  ToolReader tools_;
  ChatRequest request_;
};

}  // namespace

// The official encoder knows three of the names.
std::optional<int> ReasoningEffort(const Json& value, RequestRules rules) {
  const bool official = rules == RequestRules::kOfficialEncoder;
  int64_t effort = 0;
  if (value.is_integer()) {
    const auto* number = std::get_if<int64_t>(&value.value());
    effort = number == nullptr ? 0 : *number;
  } else if (value.is_string()) {
    const std::string& name = value.as_string();
    if (name == "low" || (name == "minimal" && !official)) {
      effort = 50;
    } else if (name == "high" || ((name == "medium" || name == "xhigh") && !official)) {
      effort = 75;
    } else if (name == "max" || (name == "ultra" && !official)) {
      effort = 100;
    } else if (!official) {
      const char* end = name.data() + name.size();
      const auto parsed = std::from_chars(name.data(), end, effort);
      if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    }
  }
  if (effort < kReasoningEffortMin || effort > kReasoningEffortMax) return std::nullopt;
  return static_cast<int>(effort);
}

Result<ChatRequest> ParseChatRequest(const Json& value, std::string_view what, RequestRules rules) {
  return RequestReader(what, rules).Read(value);
}

}  // namespace minke
