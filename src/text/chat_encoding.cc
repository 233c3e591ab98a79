#include "text/chat_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "text/prompt_writer.h"

namespace minke {

namespace {

// The fixed texts of the official encoder; they are part of what the model was trained on and may
// not change by a byte.
constexpr std::string_view kEffortLine =
    "Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n";
constexpr std::string_view kToolsHead =
    "## Tools\n"
    "\n"
    "You have access to a set of tools to help answer the user's question. You can invoke tools by "
    "writing a \"<｜DSML｜ calls>\" block like the following:\n"
    "\n"
    "<｜DSML｜ calls>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME\">\n"
    "<｜DSML｜ parameter name=\"$PARAMETER_NAME\" string=\"true|false\">$PARAMETER_VALUE"
    "</｜DSML｜ parameter>\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "<｜DSML｜ invoke name=\"$TOOL_NAME2\">\n"
    "...\n"
    "</｜DSML｜ invoke>\n"
    "</｜DSML｜ calls>\n"
    "\n"
    "String parameters should be specified as is and set `string=\"true\"`. For all other types "
    "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
    "`string=\"false\"`.\n"
    "\n"
    "If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning "
    "inside <think>...</think> BEFORE any tool calls or final response.\n"
    "\n"
    "Otherwise, output directly after </think> with tool calls or final response.\n"
    "\n"
    "### Available Tool Schemas\n"
    "\n";
constexpr std::string_view kToolsTail =
    "\n"
    "\n"
    "You MUST strictly follow the above defined tool name and parameter schemas to invoke tool "
    "calls.\n";
constexpr std::string_view kResponseFormatHead =
    "\n"
    "\n"
    "## Response Format:\n"
    "\n"
    "You MUST strictly adhere to the following schema to reply:\n";
constexpr std::string_view kBlankLine = "\n\n";
constexpr std::string_view kCallsOpen = "\n\n<｜DSML｜ calls>\n";
constexpr std::string_view kCallsClose = "\n</｜DSML｜ calls>";

// What the prompt renders at once: a message, or user and tool messages that follow each other.
struct Turn {
  Role role = Role::kUser;  // never kTool
  std::vector<const ChatMessage*> messages;
  std::string_view task;
  bool wo_eos = false;
};

// A task ends a user turn: what it asks for comes next, not more text.
std::vector<Turn> MakeTurns(const std::vector<ChatMessage>& messages) {
  std::vector<Turn> turns;
  for (const ChatMessage& message : messages) {
    const bool after_user = !turns.empty() && turns.back().role == Role::kUser;
    const bool joins = after_user && (message.role == Role::kTool ||
                                      (message.role == Role::kUser && turns.back().task.empty()));
    if (joins) {
      turns.back().messages.push_back(&message);
      if (!message.task.empty()) turns.back().task = message.task;
      continue;
    }
    const Role role = message.role == Role::kTool ? Role::kUser : message.role;
    turns.push_back({role, {&message}, message.task, message.wo_eos});
  }
  return turns;
}

// Brings the results inside each user turn into the order of the calls they answer; texts between
// them keep their places.
void SortToolResults(std::vector<Turn>* turns) {
  std::unordered_map<std::string_view, size_t> order_of_call;
  for (Turn& turn : *turns) {
    const ChatMessage& first = *turn.messages[0];
    if (turn.role == Role::kAssistant && !first.tool_calls.empty()) {
      order_of_call.clear();
      for (size_t i = 0; i < first.tool_calls.size(); ++i) {
        if (!first.tool_calls[i].id.empty()) order_of_call[first.tool_calls[i].id] = i;
      }
    }
    if (turn.role != Role::kUser || order_of_call.empty()) continue;
    std::vector<const ChatMessage*> results;
    for (const ChatMessage* message : turn.messages) {
      if (message->role == Role::kTool) results.push_back(message);
    }
    const auto order = [&order_of_call](const ChatMessage* message) {
      const auto found = order_of_call.find(message->tool_call_id);
      return found == order_of_call.end() ? 0 : found->second;
    };
    std::stable_sort(
        results.begin(), results.end(),
        [&order](const ChatMessage* a, const ChatMessage* b) { return order(a) < order(b); });
    size_t next = 0;
    for (const ChatMessage*& message : turn.messages) {
      if (message->role == Role::kTool) message = results[next++];
    }
  }
}

// The arguments of a call as an object. Text that is JSON is read, also where a client has encoded
// it twice; everything else becomes the one parameter "arguments".
Json ArgumentsObject(const Json& arguments) {
  constexpr int kEncodingsMax = 2;
  Json value = arguments;
  for (int i = 0; i < kEncodingsMax && value.is_string(); ++i) {
    Result<Json> parsed =
        ParseJson(value.as_string(), "arguments", JsonParseOptions{.reject_duplicate_keys = false});
    if (!parsed) break;
    value = std::move(*parsed);
  }
  if (value.is_object()) return value;
  return Json(JsonObject{{"arguments", arguments}});
}

class ChatEncoder {
 public:
  explicit ChatEncoder(const ChatRequest& request) : options_(request.options) {
    turns_ = MakeTurns(request.context);
    first_rendered_ = turns_.size();
    std::vector<Turn> rendered = MakeTurns(request.messages);
    std::move(rendered.begin(), rendered.end(), std::back_inserter(turns_));
    SortToolResults(&turns_);
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (turns_[i].role == Role::kUser || IsMidSystem(i)) last_user_ = i;
    }
  }

  Result<Prompt> Encode() {
    if (first_rendered_ == turns_.size()) return Fail("messages must not be empty.");
    TRY_STATUS(CheckTools());
    drops_reasoning_ = thinking() && options_.drop_thinking && !has_tools_;
    if (options_.add_default_bos_token && first_rendered_ == 0) writer_.Control(kBosToken);
    for (size_t i = first_rendered_; i < turns_.size(); ++i) {
      RenderTurn(i);
      RenderTransition(i);
      if (writer_.text_bytes() > kPromptBytesMax) {
        return Fail(ErrorCode::kLimit, fmt::format("The prompt is longer than {} bytes; shorten "
                                                   "the messages.",
                                                   kPromptBytesMax));
      }
    }
    if (options_.tool_choice.kind == ToolChoice::Kind::kRequired ||
        options_.tool_choice.kind == ToolChoice::Kind::kNamed) {
      writer_.Template(kCallsOpen);
    }
    return writer_.Take();
  }

 private:
  bool thinking() const { return options_.thinking_mode == ThinkingMode::kThinking; }
  bool IsMidSystem(size_t turn) const { return turn > 0 && turns_[turn].role == Role::kSystem; }

  // The tools of a message that tool_choice leaves.
  std::vector<const Json*> ShownTools(const ChatMessage& message) const {
    std::vector<const Json*> shown;
    if (options_.tool_choice.kind == ToolChoice::Kind::kNone) return shown;
    for (const Json& tool : message.tools) {
      const bool named = options_.tool_choice.kind == ToolChoice::Kind::kNamed;
      const Json* name = tool.Find("name");
      if (named && (name == nullptr || !name->is_string() ||
                    name->as_string() != options_.tool_choice.name)) {
        continue;
      }
      shown.push_back(&tool);
    }
    return shown;
  }

  Status CheckTools() {
    bool has_calls = false;
    bool lacks_reasoning = false;
    for (const Turn& turn : turns_) {
      for (const ChatMessage* message : turn.messages) {
        has_tools_ = has_tools_ || !ShownTools(*message).empty();
        has_calls = has_calls || !message->tool_calls.empty();
        lacks_reasoning = lacks_reasoning || (message->role == Role::kAssistant &&
                                              !message->reasoning_content.has_value());
      }
    }
    if (options_.require_reasoning_content && thinking() && has_tools_ && has_calls &&
        lacks_reasoning) {
      return Fail("The reasoning_content in the thinking mode must be passed back to the API.");
    }
    const ToolChoice& choice = options_.tool_choice;
    if (choice.kind != ToolChoice::Kind::kRequired && choice.kind != ToolChoice::Kind::kNamed) {
      return {};
    }
    if (thinking()) return Fail("Thinking mode does not support this tool_choice.");
    if (!has_tools_) {
      return Fail(choice.kind == ToolChoice::Kind::kNamed
                      ? fmt::format("tool_choice names the tool \"{}\", which is not declared in "
                                    "tools.",
                                    choice.name)
                      : "tool_choice \"required\" needs at least one tool in tools.");
    }
    const Turn& last = turns_.back();
    const bool generates = last.role == Role::kUser || IsMidSystem(turns_.size() - 1);
    if (!generates || !last.task.empty()) {
      return Fail("tool_choice \"required\" needs a user or tool message at the end of messages.");
    }
    return {};
  }

  void RenderTurn(size_t index) {
    const Turn& turn = turns_[index];
    if (index == 0 && (thinking() || turn.role == Role::kSystem)) writer_.Control(kSystemToken);
    if (index == 0 && thinking()) {
      writer_.Template(fmt::format(fmt::runtime(kEffortLine), options_.reasoning_effort));
    }
    switch (turn.role) {
      case Role::kSystem:
        if (index > 0) writer_.Control(kSystemToken);
        RenderSystem(*turn.messages[0]);
        break;
      case Role::kUser:
        writer_.Control(kUserToken);
        RenderUser(turn);
        break;
      case Role::kLatestReminder:
        writer_.Control(kLatestReminderToken);
        RenderContent(*turn.messages[0]);
        break;
      case Role::kAssistant:
        RenderAssistant(index);
        break;
      case Role::kTool:
        CHECK(false, "tool messages are part of a user turn");
    }
  }

  // Blocks joined by blank lines.
  void RenderContent(const ChatMessage& message) {
    bool first = true;
    for (const ContentPart& part : message.content) {
      // The official encoder shows unknown blocks by name, but leaves them out of tool results.
      if (part.kind == ContentPart::Kind::kUnsupported && message.role == Role::kTool) continue;
      if (!first) writer_.Template(kBlankLine);
      first = false;
      if (part.kind == ContentPart::Kind::kImage) {
        writer_.Image(part.image);
      } else if (part.kind == ContentPart::Kind::kUnsupported) {
        writer_.Template("[Unsupported ");
        writer_.Plain(part.text);
        writer_.Template("]");
      } else if (message.role == Role::kAssistant) {
        writer_.Assistant(part.text);
      } else {
        writer_.Plain(part.text);
      }
    }
  }

  void RenderSystem(const ChatMessage& message) {
    RenderContent(message);
    const std::vector<const Json*> tools = ShownTools(message);
    if (!tools.empty()) {
      writer_.Template(kBlankLine);
      writer_.Template(kToolsHead);
      for (size_t i = 0; i < tools.size(); ++i) {
        if (i > 0) writer_.Template("\n");
        writer_.Plain(DumpJson(*tools[i], JsonStyle::kPython));
      }
      writer_.Template(kToolsTail);
    }
    if (message.response_format.has_value()) {
      writer_.Template(kResponseFormatHead);
      writer_.Plain(DumpJson(*message.response_format, JsonStyle::kPython));
    }
  }

  void RenderUser(const Turn& turn) {
    for (size_t i = 0; i < turn.messages.size(); ++i) {
      const ChatMessage& message = *turn.messages[i];
      if (i > 0) writer_.Template(kBlankLine);
      if (message.role == Role::kTool) writer_.Template("<tool_result>");
      RenderContent(message);
      if (message.role == Role::kTool) writer_.Template("</tool_result>");
    }
  }

  void RenderAssistant(size_t index) {
    const Turn& turn = turns_[index];
    const ChatMessage& message = *turn.messages[0];
    // The answer to a task follows the task's token at once, without reasoning.
    const bool answers_task = index > 0 && !turns_[index - 1].task.empty();
    const bool keeps = !drops_reasoning_ || !last_user_.has_value() || index > *last_user_;
    const bool reasons = thinking() && !answers_task && keeps;
    const bool after_header = index > 0 && !answers_task &&
                              (turns_[index - 1].role == Role::kUser || IsMidSystem(index - 1));
    if (after_header && !turn.wo_eos && !message.exact_ids.empty() &&
        message.exact_thinking == reasons) {
      PromptWriter before = std::exchange(writer_, PromptWriter());
      RenderAnswer(message, reasons);
      const std::string text = writer_.Take().Text();
      writer_ = std::move(before);
      writer_.Exact(text, message.exact_ids);
    } else {
      RenderAnswer(message, reasons);
    }
    if (!turn.wo_eos) writer_.Control(kEosToken);
  }

  void RenderAnswer(const ChatMessage& message, bool reasons) {
    if (reasons) {
      writer_.Assistant(message.reasoning_content.value_or(""));
      writer_.Control(kThinkEndToken);
    }
    RenderContent(message);
    if (!message.tool_calls.empty()) {
      writer_.Template(kCallsOpen);
      for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        if (i > 0) writer_.Template("\n");
        RenderToolCall(message.tool_calls[i]);
      }
      writer_.Template(kCallsClose);
    }
  }

  void RenderToolCall(const ToolCall& call) {
    writer_.Template("<｜DSML｜ invoke name=\"");
    writer_.Plain(call.name);
    writer_.Template("\">\n");
    bool first = true;
    const Json arguments = ArgumentsObject(call.arguments);
    for (const JsonMember& argument : arguments.as_object()) {
      if (!first) writer_.Template("\n");
      first = false;
      const bool is_string = argument.second.is_string();
      writer_.Template("<｜DSML｜ parameter name=\"");
      writer_.Plain(argument.first);
      writer_.Template(is_string ? "\" string=\"true\">" : "\" string=\"false\">");
      writer_.Plain(is_string ? argument.second.as_string()
                              : DumpJson(argument.second, JsonStyle::kPython));
      writer_.Template("</｜DSML｜ parameter>");
    }
    writer_.Template("\n</｜DSML｜ invoke>");
  }

  // What follows a turn when the model speaks next: the header of its turn, or a task's token.
  void RenderTransition(size_t index) {
    const Turn& turn = turns_[index];
    if (index + 1 < turns_.size()) {
      const Role next = turns_[index + 1].role;
      if (next != Role::kAssistant && next != Role::kLatestReminder) return;
    }
    if (!turn.task.empty()) {
      if (turn.task == "action") {
        writer_.Control(kAssistantToken);
        writer_.Control(thinking() ? kThinkStartToken : kThinkEndToken);
      }
      writer_.Control(fmt::format("<｜{}｜>", turn.task));
      return;
    }
    if (turn.role != Role::kUser && !IsMidSystem(index)) return;
    const bool keeps = !drops_reasoning_ || index >= last_user_.value_or(0);
    writer_.Control(kAssistantToken);
    writer_.Control(thinking() && keeps ? kThinkStartToken : kThinkEndToken);
  }

  const EncodeOptions& options_;
  std::vector<Turn> turns_;  // those of the context, then those to render
  size_t first_rendered_ = 0;
  std::optional<size_t> last_user_;
  bool has_tools_ = false;
  bool drops_reasoning_ = false;
  PromptWriter writer_;
};

Status AppendExactIds(const std::vector<int32_t>& exact, const Tokenizer& tokenizer,
                      std::vector<int32_t>* ids) {
  for (const int32_t id : exact) {
    if (id < 0 || id >= tokenizer.vocab_size()) {
      return Fail(
          fmt::format("A turn that was kept as it was written has the token {}, which this "
                      "tokenizer does not have.",
                      id));
    }
    ids->push_back(id);
  }
  return {};
}

}  // namespace

std::string Prompt::Text() const {
  std::string text;
  for (const PromptPiece& piece : pieces) text += piece.text;
  return text;
}

Result<Prompt> EncodeChat(const ChatRequest& request) {
  if (request.options.reasoning_effort < kReasoningEffortMin ||
      request.options.reasoning_effort > kReasoningEffortMax) {
    return Fail(fmt::format("reasoning_effort must be from {} to {}, but it is {}.",
                            kReasoningEffortMin, kReasoningEffortMax,
                            request.options.reasoning_effort));
  }
  return ChatEncoder(request).Encode();
}

Result<std::vector<int32_t>> PromptIds(const Prompt& prompt, const Tokenizer& tokenizer) {
  if (prompt.Text().size() > kEncodeBytesMax) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The prompt is longer than {} bytes.", kEncodeBytesMax));
  }
  std::vector<int32_t> ids;
  std::string text;
  const auto encode_text = [&] {
    const std::vector<int32_t> encoded = tokenizer.EncodePlain(text);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    text.clear();
  };
  for (const PromptPiece& piece : prompt.pieces) {
    using Kind = PromptPiece::Kind;
    if (piece.kind == Kind::kTemplate || piece.kind == Kind::kPlain) {
      text += piece.text;
      continue;
    }
    if (piece.kind == Kind::kExact) {
      encode_text();
      TRY_STATUS(AppendExactIds(piece.ids, tokenizer, &ids));
      continue;
    }
    const std::optional<int32_t> id = tokenizer.ControlToken(piece.text);
    if (!id.has_value() && piece.kind == Kind::kGrounding) {
      text += piece.text;
      continue;
    }
    if (!id.has_value()) {
      return Fail(
          fmt::format("The tokenizer has no control token {}, which the prompt needs; use "
                      "the tokenizer.json of the model.",
                      piece.text));
    }
    encode_text();
    ids.push_back(*id);
  }
  encode_text();
  return ids;
}

Result<Json> ParseTaggedText(std::string_view text) {
  constexpr std::string_view kOpen = "<image>";
  constexpr std::string_view kClose = "</image>";
  if (text.find(kOpen) == std::string_view::npos) return Json(std::string(text));
  JsonArray blocks;
  const auto add_text = [&blocks](std::string_view part) {
    if (part.empty()) return;
    blocks.push_back(Json(JsonObject{{"type", "text"}, {"text", std::string(part)}}));
  };
  size_t open = 0;
  while ((open = text.find(kOpen)) != std::string_view::npos) {
    add_text(text.substr(0, open));
    text.remove_prefix(open + kOpen.size());
    const size_t close = text.find(kClose);
    if (close == std::string_view::npos) return Fail("Malformed <image>path</image> tag.");
    if (close == 0) return Fail("Image path must not be empty.");
    const Json url(JsonObject{{"url", std::string(text.substr(0, close))}});
    blocks.push_back(Json(JsonObject{{"type", "image_url"}, {"image_url", url}}));
    text.remove_prefix(close + kClose.size());
  }
  add_text(text);
  return Json(std::move(blocks));
}

}  // namespace minke
