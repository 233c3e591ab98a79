// Writes answers of the Messages API: blocks with their events (serving.md 1.5). Events have names,
// and there is no [DONE].
#include <string>
#include <string_view>
#include <utility>

#include "server/agent_fields.h"
#include "server/api.h"
#include "server/tool_list.h"

namespace minke {

namespace {

// The tokens of the prompt are apart here: those read from the cache are not in input_tokens.
Json MessagesUsage(const Usage& usage) {
  return Json(JsonObject{
      {"input_tokens", usage.miss_tokens},
      {"cache_creation_input_tokens", 0},
      {"cache_read_input_tokens", usage.hit_tokens},
      {"output_tokens", usage.completion_tokens},
      {"minke", usage.Detail()},
  });
}

std::string_view StopReason(AnswerFinish finish) {
  switch (finish) {
    case AnswerFinish::kStopString:
      return "stop_sequence";
    case AnswerFinish::kLength:
      return "max_tokens";
    case AnswerFinish::kToolCalls:
      return "tool_use";
    case AnswerFinish::kStop:
    case AnswerFinish::kOverloaded:
      return "end_turn";
  }
  return "end_turn";
}

class MessagesWriter : public AnswerWriter {
 public:
  MessagesWriter(const ApiRequest& request, const AnswerIds& ids)
      : stream_(request.stream), opens_reasoning_(request.opens_reasoning()), ids_(ids) {}

  std::string Start(const Usage& usage) override {
    std::string bytes;
    if (stream_) {
      Json message = Message(nullptr, nullptr);
      message.Set("usage", MessagesUsage(usage));
      bytes = Event("message_start", {{"message", std::move(message)}});
    }
    if (opens_reasoning_) bytes += Open(Block::kThinking, {});
    return bytes;
  }

  std::string Piece(const AnswerPiece& piece) override {
    using Kind = AnswerPiece::Kind;
    switch (piece.kind) {
      case Kind::kReasoning:
        return Text(Block::kThinking, piece.text);
      case Kind::kContent:
        return Text(Block::kText, piece.text);
      case Kind::kToolCall:
        return Open(Block::kToolUse, piece);
      case Kind::kToolArguments:
        return open_.kind == Block::kToolUse ? Text(Block::kToolUse, piece.text) : std::string();
      case Kind::kToolCallEnd:
        return Close();
    }
    return {};
  }

  std::string End(const AnswerEnd& end) override {
    std::string bytes = Close();
    if (end.finish == AnswerFinish::kOverloaded) {
      ApiError error;
      error.status = 503;
      error.message = "The server ran out of resources before the answer was complete.";
      return bytes += Error(error);
    }
    const Json reason(std::string(StopReason(end.finish)));
    const bool stopped = end.finish == AnswerFinish::kStopString;
    const Json sequence = stopped ? Json(end.stop_string) : Json();
    const Json usage = MessagesUsage(end.usage);
    if (!stream_) {
      Json message = Message(reason, sequence);
      message.Set("usage", usage);
      return DumpJson(message, JsonStyle::kCompact);
    }
    const Json delta(JsonObject{{"stop_reason", reason}, {"stop_sequence", sequence}});
    bytes += Event("message_delta", {{"delta", delta}, {"usage", usage}});
    return bytes += Event("message_stop", {});
  }

  std::string Error(const ApiError& error) override {
    if (!stream_) return ErrorBody(ApiFamily::kMessages, error, ids_.request_id);
    return StreamEvent("error", ErrorEnvelope(ApiFamily::kMessages, error, ids_.request_id));
  }

  // Clients' watchdogs count events only, so a comment would not do (serving.md 1.7).
  std::string KeepAlive(bool /*comments*/) override {
    return stream_ ? Event("ping", {}) : std::string(kKeepAliveBlank);
  }

 private:
  // A block of the answer that is being written.
  struct Block {
    enum Kind { kNone, kThinking, kText, kToolUse };
    Kind kind = kNone;
    std::string id;
    std::string name;
    std::string text;  // so far: text, thinking or the JSON text of the input
  };

  std::string Event(std::string_view type, JsonObject members) const {
    if (!stream_) return {};
    members.insert(members.begin(), JsonMember("type", std::string(type)));
    return StreamEvent(type, Json(std::move(members)));
  }

  std::string BlockEvent(std::string_view type, JsonObject members) const {
    members.insert(members.begin(), JsonMember("index", static_cast<int64_t>(content_.size())));
    return Event(type, std::move(members));
  }

  std::string MessageId() const { return "msg_" + ids_.id; }

  Json Message(const Json& stop_reason, const Json& stop_sequence) const {
    return Json(JsonObject{{"id", MessageId()},
                           {"type", "message"},
                           {"role", "assistant"},
                           {"model", ids_.model},
                           {"content", content_},
                           {"stop_reason", stop_reason},
                           {"stop_sequence", stop_sequence}});
  }

  // The open block as it is now. `empty`: as it was when it began.
  Json BlockJson(bool empty) const {
    if (open_.kind == Block::kThinking) {
      return Json(JsonObject{{"type", "thinking"},
                             {"thinking", open_.text},
                             {"signature", empty ? std::string() : MessageId()}});
    }
    if (open_.kind == Block::kText) return Json(JsonObject{{"type", "text"}, {"text", open_.text}});
    return Json(JsonObject{{"type", "tool_use"},
                           {"id", open_.id},
                           {"name", open_.name},
                           {"input", empty ? Json(JsonObject()) : Input()}});
  }

  // The parser gives JSON; what no client's parser would take either is one text.
  Json Input() const {
    const Result<Json> input =
        ParseJson(open_.text, "input", JsonParseOptions{.reject_duplicate_keys = false});
    if (input && input->is_object()) return *input;
    return Json(JsonObject{{"arguments", open_.text}});
  }

  std::string Open(Block::Kind kind, const AnswerPiece& piece) {
    std::string bytes = Close();
    open_.kind = kind;
    if (kind == Block::kToolUse) {
      open_.id = AnswerCallId(ApiFamily::kMessages, ids_.id, piece.tool_index);
      open_.name = QualifiedToolName(piece.tool_namespace, piece.name);
    }
    bytes += BlockEvent("content_block_start", {{"content_block", BlockJson(true)}});
    if (content_.empty()) bytes += Event("ping", {});
    return bytes;
  }

  std::string Text(Block::Kind kind, const std::string& text) {
    if (text.empty()) return {};
    std::string bytes;
    if (open_.kind != kind) bytes = Open(kind, {});
    open_.text += text;
    const char* type = kind == Block::kThinking ? "thinking_delta"
                       : kind == Block::kText   ? "text_delta"
                                                : "input_json_delta";
    const char* key = kind == Block::kThinking ? "thinking"
                      : kind == Block::kText   ? "text"
                                               : "partial_json";
    return bytes += Delta(Json(JsonObject{{"type", type}, {key, text}}));
  }

  std::string Delta(Json delta) const {
    return BlockEvent("content_block_delta", {{"delta", std::move(delta)}});
  }

  std::string Close() {
    if (open_.kind == Block::kNone) return {};
    std::string bytes;
    if (open_.kind == Block::kThinking) {
      bytes += Delta(Json(JsonObject{{"type", "signature_delta"}, {"signature", MessageId()}}));
    }
    bytes += BlockEvent("content_block_stop", {});
    content_.push_back(BlockJson(false));
    open_ = Block();
    return bytes;
  }

  bool stream_;
  bool opens_reasoning_;
  AnswerIds ids_;
  Block open_;
  JsonArray content_;  // the blocks that are complete
};

}  // namespace

std::unique_ptr<AnswerWriter> NewMessagesWriter(const ApiRequest& request, const AnswerIds& ids) {
  return std::make_unique<MessagesWriter>(request, ids);
}

}  // namespace minke
