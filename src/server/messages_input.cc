#include "server/messages_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "server/agent_fields.h"
#include "text/request_fields.h"

namespace minke {

namespace {

constexpr BodyTypeRule kInputRules[] = {
    {"system", kBodyText | kBodyList},
    {"system[]", kBodyObject},
    {"system[].type", kBodyText},
    {"system[].text", kBodyText},
    {"messages", kBodyList},
    {"messages[]", kBodyObject},
    {"messages[].role", kBodyText},
    {"messages[].content", kBodyText | kBodyList},
    {"messages[].content[]", kBodyObject},
    {"messages[].content[].type", kBodyText},
};
constexpr BodyTypeRule kBlockRules[] = {
    {"text", kBodyText}, {"thinking", kBodyText}, {"id", kBodyText},
    {"name", kBodyText}, {"input", kBodyObject},
};
constexpr BodyTypeRule kResultRules[] = {
    {"tool_use_id", kBodyText},    {"content", kBodyText | kBodyList}, {"content[]", kBodyObject},
    {"content[].type", kBodyText}, {"content[].text", kBodyText},      {"is_error", kBodyFlag},
};

// A line of Claude Code for the accounts of its own service. It differs from request to request and
// stands at the very beginning, where it would keep every prompt from the cache.
constexpr std::string_view kAccountsLine = "x-anthropic-billing-header:";

class MessagesInputReader {
 public:
  ApiResult<std::vector<ChatMessage>> Read(const Json& body) {
    TRY_STATUS(CheckBodyTypes(body, kInputRules));
    if (const Json* system = BodyMember(body, "system")) ReadSystem(*system);
    const Json* list = BodyMember(body, "messages");
    if (list == nullptr) return RefuseBody("messages", "messages: Field required");
    const JsonArray& messages = list->as_array();
    if (messages.empty()) {
      return RefuseBody("messages", "messages: at least one message is required");
    }
    if (messages.size() > kMessagesMax) {
      return RefuseBody("messages", fmt::format("messages has {} entries; at most {} are accepted.",
                                                messages.size(), kMessagesMax));
    }
    for (index_ = 0; index_ < messages.size(); ++index_) TRY_STATUS(ReadMessage(messages[index_]));
    TRY_STATUS(CheckAllAnswered());
    // An assistant's message at the end is the beginning of the answer.
    if (out_.back().role == Role::kAssistant) out_.back().wo_eos = true;
    return std::move(out_);
  }

 private:
  std::string Place() const { return fmt::format("messages.{}", index_); }
  std::string BlockPlace(size_t block) const {
    return fmt::format("messages.{}.content.{}", index_, block);
  }

  void ReadSystem(const Json& system) {
    ChatMessage message{.role = Role::kSystem};
    const auto add = [&message](std::string text) {
      if (text.empty() || text.compare(0, kAccountsLine.size(), kAccountsLine) == 0) return;
      message.content.push_back({.text = std::move(text)});
    };
    if (system.is_string()) {
      add(system.as_string());
    } else {
      for (const Json& block : system.as_array()) add(BodyText(block, "text"));
    }
    if (!message.content.empty()) out_.push_back(std::move(message));
  }

  ApiStatus ReadMessage(const Json& message) {
    const std::string role = BodyText(message, "role");
    const Json* content = BodyMember(message, "content");
    if (content == nullptr) {
      return RefuseBody(Place() + ".content", Place() + ".content: Field required");
    }
    // A text is one block of text.
    const JsonArray blocks =
        content->is_string()
            ? JsonArray{Json(JsonObject{{"type", "text"}, {"text", content->as_string()}})}
            : content->as_array();
    if (role == "assistant") return ReadAssistant(blocks);
    if (role == "user") return ReadUser(blocks);
    if (role == "system") return ReadReminder(blocks);
    return RefuseBody(Place() + ".role",
                      fmt::format("{}.role: must be user, assistant or system, but it is {}",
                                  Place(), role.empty() ? "missing" : RequestFields::Quote(role)));
  }

  // Without a system prompt a leading system message is one.
  ApiStatus ReadReminder(const JsonArray& blocks) {
    std::string text;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (i > 0) text += "\n\n";
      TRY_STATUS(CheckEntryTypes(blocks[i], BlockPlace(i), kBlockRules));
      text += BodyText(blocks[i], "text");
    }
    const bool leads = out_.empty();
    ChatMessage message{.role = leads ? Role::kSystem : Role::kUser};
    if (!leads) text = fmt::format("<system-reminder>\n{}\n</system-reminder>", text);
    message.content.push_back({.text = std::move(text)});
    out_.push_back(std::move(message));
    return {};
  }

  // ---- the assistant -----------------------------------------------------------------------

  ApiStatus ReadAssistant(const JsonArray& blocks) {
    if (out_.empty() || out_.back().role != Role::kAssistant) {
      TRY_STATUS(CheckAllAnswered());
      answered_.clear();
      out_.push_back(ChatMessage{.role = Role::kAssistant});
    }
    ChatMessage& turn = out_.back();
    for (size_t i = 0; i < blocks.size(); ++i) {
      const Json& block = blocks[i];
      TRY_STATUS(CheckEntryTypes(block, BlockPlace(i), kBlockRules));
      const std::string type = BodyText(block, "type");
      if (type == "text") {
        turn.content.push_back({.text = BodyText(block, "text")});
      } else if (type == "thinking") {
        std::string thinking = BodyText(block, "thinking");
        if (turn.turn_id.empty()) turn.turn_id = IdOfTurn(block, "signature");
        if (turn.reasoning_content.has_value()) {
          turn.reasoning_content->append("\n").append(thinking);
        } else {
          turn.reasoning_content = std::move(thinking);
        }
      } else if (type == "tool_use") {
        TRY_STATUS(ReadToolUse(block, BlockPlace(i), &turn));
      } else if (type.empty()) {
        return RefuseBody(BlockPlace(i), BlockPlace(i) + ".type: Field required");
      }
      // Everything else (redacted thinking, tools of another service) is not this model's to read.
    }
    return {};
  }

  ApiStatus ReadToolUse(const Json& block, const std::string& place, ChatMessage* turn) {
    ToolCall call;
    call.id = BodyText(block, "id");
    call.name = BodyText(block, "name");
    for (const std::string_view key : {"id", "name"}) {
      if (!(key == "id" ? call.id : call.name).empty()) continue;
      return RefuseBody(place, fmt::format("{}.{}: Field required", place, key));
    }
    const Json* input = BodyMember(block, "input");
    call.arguments = input == nullptr ? Json(JsonObject()) : *input;
    if (!used_.insert(call.id).second) {
      return RefuseBody(
          place,
          fmt::format("{}: `tool_use` ids must be unique, but {} is there again", place, call.id));
    }
    unanswered_.push_back(call.id);
    calling_place_ = Place();
    turn->tool_calls.push_back(std::move(call));
    return {};
  }

  ApiStatus CheckAllAnswered() const {
    if (unanswered_.empty()) return {};
    return RefuseBody(
        calling_place_,
        fmt::format(
            "{}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            "{}. Each `tool_use` block must have a corresponding `tool_result` block in the "
            "next message.",
            calling_place_, fmt::join(unanswered_, ", ")));
  }

  // ---- the user ----------------------------------------------------------------------------

  // Documents and pictures become words: an answer that refused them would come again on every
  // later turn of the conversation.
  static std::string TextOfBlock(const Json& block) {
    const std::string type = BodyText(block, "type");
    if (type == "text") return BodyText(block, "text");
    if (type == "document") return "[Unsupported Document]";
    if (type == "image") return "[Unsupported Image]";
    return fmt::format("[Unsupported {}]", type);
  }

  ApiStatus ReadUser(const JsonArray& blocks) {
    if (blocks.empty()) out_.push_back(ChatMessage{.role = Role::kUser});
    bool in_text = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string type = BodyText(blocks[i], "type");
      if (type.empty()) return RefuseBody(BlockPlace(i), BlockPlace(i) + ".type: Field required");
      if (type == "tool_result") {
        TRY_STATUS(ReadToolResult(blocks[i], BlockPlace(i)));
        in_text = false;
        continue;
      }
      if (type == "text") TRY_STATUS(CheckEntryTypes(blocks[i], BlockPlace(i), kBlockRules));
      if (!in_text) out_.push_back(ChatMessage{.role = Role::kUser});
      in_text = true;
      out_.back().content.push_back({.text = TextOfBlock(blocks[i])});
    }
    return {};
  }

  ApiStatus ReadToolResult(const Json& block, const std::string& place) {
    TRY_STATUS(CheckEntryTypes(block, place, kResultRules));
    ChatMessage result{.role = Role::kTool};
    result.tool_call_id = BodyText(block, "tool_use_id");
    const std::string& id = result.tool_call_id;
    if (id.empty()) return RefuseBody(place, place + ".tool_use_id: Field required");
    const auto open = std::find(unanswered_.begin(), unanswered_.end(), id);
    if (open == unanswered_.end() && answered_.contains(id)) {
      return RefuseBody(place, fmt::format("{}: each `tool_use` must have a single result. Found "
                                           "multiple `tool_result` blocks with id: {}",
                                           place, id));
    }
    if (open == unanswered_.end()) {
      return RefuseBody(
          place,
          fmt::format("{}: unexpected `tool_use_id` found in `tool_result` blocks: {}. Each "
                      "`tool_result` block must have a corresponding `tool_use` block in the "
                      "previous message.",
                      place, id));
    }
    answered_.insert(id);
    unanswered_.erase(open);
    const Json* content = BodyMember(block, "content");
    if (content != nullptr && content->is_string()) {
      result.content.push_back({.text = content->as_string()});
    } else if (content != nullptr) {
      for (const Json& part : content->as_array()) {
        result.content.push_back({.text = TextOfBlock(part)});
      }
    }
    // A failed call says in its own words what went wrong, unless it has none.
    const bool silent = std::all_of(result.content.begin(), result.content.end(),
                                    [](const ContentPart& part) { return part.text.empty(); });
    if (silent && BodyFlag(block, "is_error")) result.content = {{.text = "Error"}};
    out_.push_back(std::move(result));
    return {};
  }

  size_t index_ = 0;  // of the message that is being read
  std::vector<ChatMessage> out_;
  std::unordered_set<std::string> used_;      // ids of all tool_use blocks so far
  std::vector<std::string> unanswered_;       // of the last turn's, those without a result so far
  std::unordered_set<std::string> answered_;  // of the last turn's, the others
  std::string calling_place_;                 // of the last message with a tool_use
};

}  // namespace

ApiResult<std::vector<ChatMessage>> ReadMessagesInput(const Json& body) {
  return MessagesInputReader().Read(body);
}

}  // namespace minke
