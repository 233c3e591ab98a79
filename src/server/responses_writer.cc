// Writes answers of the Responses API: items with their events, in the order that Codex and the
// SDKs rely on (serving.md 1.5). Whatever is not streamed is kept as well, because the last event
// repeats the whole answer.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "server/agent_fields.h"
#include "server/api.h"
#include "server/custom_input.h"
#include "server/tool_list.h"

namespace minke {

namespace {

Json UsageJson(const Usage& usage) {
  return Json(JsonObject{
      {"input_tokens", usage.prompt_tokens},
      {"input_tokens_details", Json(JsonObject{{"cached_tokens", usage.hit_tokens}})},
      {"output_tokens", usage.completion_tokens},
      {"output_tokens_details", Json(JsonObject{{"reasoning_tokens", usage.reasoning_tokens}})},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"minke", usage.Detail()},
  });
}

// The codes of errors that the Responses API has; Codex shortens or retries by them.
std::string FailureCode(const ApiError& error) {
  if (error.code == "context_length_exceeded") return error.code;
  if (error.status == 429) return "rate_limit_exceeded";
  if (error.status == 503) return "server_is_overloaded";
  return error.status < 500 ? "invalid_prompt" : "server_error";
}

class ResponsesWriter : public AnswerWriter {
 public:
  ResponsesWriter(const ApiRequest& request, const AnswerIds& ids)
      : stream_(request.stream),
        custom_tools_(request.custom_tools),
        echo_fields_(request.echo_fields),
        ids_(ids) {}

  std::string Start(const Usage& /*usage*/) override {
    if (!stream_ || started_) return {};
    started_ = true;
    const Json response = Response("in_progress", nullptr, nullptr);
    std::string bytes = Event("response.created", {{"response", response}});
    return bytes += Event("response.in_progress", {{"response", response}});
  }

  std::string Piece(const AnswerPiece& piece) override {
    using Kind = AnswerPiece::Kind;
    switch (piece.kind) {
      case Kind::kReasoning:
        return piece.text.empty() ? std::string() : Text(Item::kReasoning, piece.text);
      case Kind::kContent:
        return piece.text.empty() ? std::string() : Text(Item::kMessage, piece.text);
      case Kind::kToolCall:
        return OpenCall(piece);
      case Kind::kToolArguments:
        return CallDelta(open_.kind == Item::kCustomCall ? open_.custom.Push(piece.text)
                                                         : piece.text);
      case Kind::kToolCallEnd:
        return Close("completed", false);
    }
    return {};
  }

  std::string End(const AnswerEnd& end) override {
    if (end.finish == AnswerFinish::kOverloaded) {
      ApiError error;
      error.status = 503;
      error.message = "The server ran out of resources before the answer was complete.";
      return Fail(error, UsageJson(end.usage));
    }
    const bool cut = end.finish == AnswerFinish::kLength;
    std::string bytes = Close(cut ? "incomplete" : "completed", false);
    Json response = Response(cut ? "incomplete" : "completed", nullptr, UsageJson(end.usage));
    if (cut) response.Set("incomplete_details", Json(JsonObject{{"reason", "max_output_tokens"}}));
    if (!stream_) return DumpJson(response, JsonStyle::kCompact);
    return bytes += Event(cut ? "response.incomplete" : "response.completed",
                          {{"response", std::move(response)}});
  }

  std::string Error(const ApiError& error) override {
    if (!stream_) return ErrorBody(ApiFamily::kResponses, error, ids_.request_id);
    return Fail(error, nullptr);
  }

  // Comments are enough for Codex. Where they are not wanted, the state is told once more
  // (serving.md 1.7).
  std::string KeepAlive(bool comments) override {
    if (!stream_) return std::string(kKeepAliveBlank);
    if (comments) return std::string(kKeepAliveComment);
    if (!started_) return Start({});
    return Event("response.in_progress", {{"response", Response("in_progress", nullptr, nullptr)}});
  }

 private:
  // An item of the answer that is being written.
  struct Item {
    enum Kind { kNone, kReasoning, kMessage, kFunctionCall, kCustomCall };
    Kind kind = kNone;
    std::string id;
    std::string call_id;
    std::string tool_namespace;
    std::string name;
    std::string text;  // so far: text, arguments or input
    CustomInput custom;
  };

  std::string Event(std::string_view type, JsonObject members) {
    if (!stream_) return {};
    JsonObject event = {{"type", std::string(type)}, {"sequence_number", sequence_number_++}};
    std::move(members.begin(), members.end(), std::back_inserter(event));
    return StreamEvent(type, Json(std::move(event)));
  }

  // An event about the open item; `content`: about its one part.
  std::string ItemEvent(std::string_view type, bool content, JsonObject members) {
    JsonObject all = {{"item_id", open_.id}, {"output_index", OutputIndex()}};
    if (content) all.emplace_back("content_index", 0);
    std::move(members.begin(), members.end(), std::back_inserter(all));
    return Event(type, std::move(all));
  }

  int64_t OutputIndex() const { return static_cast<int64_t>(output_.size()); }

  Json Response(std::string_view status, Json error, Json usage) const {
    JsonObject response = {
        {"id", "resp_" + ids_.id},    {"object", "response"},
        {"created_at", ids_.created}, {"status", std::string(status)},
        {"error", std::move(error)},  {"incomplete_details", nullptr},
        {"model", ids_.model},        {"output", output_},
    };
    if (echo_fields_.is_object()) {
      const JsonObject& echo = echo_fields_.as_object();
      response.insert(response.end(), echo.begin(), echo.end());
    }
    response.emplace_back("usage", std::move(usage));
    return Json(std::move(response));
  }

  bool IsCall() const {
    return open_.kind == Item::kFunctionCall || open_.kind == Item::kCustomCall;
  }

  // The one part of a reasoning or message item.
  Json Part() const {
    if (open_.kind == Item::kReasoning) {
      return Json(JsonObject{{"type", "reasoning_text"}, {"text", open_.text}});
    }
    return Json(JsonObject{{"type", "output_text"},
                           {"text", open_.text},
                           {"annotations", JsonArray()},
                           {"logprobs", JsonArray()}});
  }

  // The open item as it is now. `empty`: as it was when it began.
  Json ItemJson(std::string_view status, bool empty) const {
    Json item(JsonObject{{"id", open_.id}});
    const Json content = empty ? Json(JsonArray()) : Json(JsonArray{Part()});
    if (open_.kind == Item::kReasoning) {
      item.Set("type", "reasoning");
      item.Set("summary", JsonArray());
      item.Set("content", content);
      item.Set("encrypted_content", nullptr);
    } else if (open_.kind == Item::kMessage) {
      item.Set("type", "message");
      item.Set("role", "assistant");
      item.Set("content", content);
    } else {
      const bool custom = open_.kind == Item::kCustomCall;
      item.Set("type", custom ? "custom_tool_call" : "function_call");
      item.Set("call_id", open_.call_id);
      if (!open_.tool_namespace.empty()) item.Set("namespace", open_.tool_namespace);
      item.Set("name", open_.name);
      item.Set(custom ? "input" : "arguments", open_.text);
    }
    item.Set("status", std::string(status));
    return item;
  }

  std::string Open(Item item) {
    open_ = std::move(item);
    return Event("response.output_item.added",
                 {{"output_index", OutputIndex()}, {"item", ItemJson("in_progress", true)}});
  }

  std::string NewId(std::string_view prefix) const {
    return fmt::format("{}_{}_{}", prefix, ids_.id, OutputIndex());
  }

  std::string Text(Item::Kind kind, const std::string& text) {
    const bool reasoning = kind == Item::kReasoning;
    std::string bytes;
    if (open_.kind != kind) {
      bytes = Close("completed", false);
      Item item;
      item.kind = kind;
      item.id = NewId(reasoning ? "rs" : "msg");
      bytes += Open(std::move(item));
      bytes += ItemEvent("response.content_part.added", true, {{"part", Part()}});
    }
    open_.text += text;
    JsonObject delta = {{"delta", text}};
    if (!reasoning) delta.emplace_back("logprobs", JsonArray());
    return bytes +=
           ItemEvent(reasoning ? "response.reasoning_text.delta" : "response.output_text.delta",
                     true, std::move(delta));
  }

  std::string OpenCall(const AnswerPiece& piece) {
    std::string bytes = Close("completed", true);
    Item item;
    const std::string qualified = QualifiedToolName(piece.tool_namespace, piece.name);
    const bool custom =
        std::find(custom_tools_.begin(), custom_tools_.end(), qualified) != custom_tools_.end();
    item.kind = custom ? Item::kCustomCall : Item::kFunctionCall;
    item.id = NewId(custom ? "ctc" : "fc");
    item.call_id = AnswerCallId(ApiFamily::kResponses, ids_.id, piece.tool_index);
    item.tool_namespace = piece.tool_namespace;
    item.name = piece.name;
    return bytes += Open(std::move(item));
  }

  std::string CallDelta(const std::string& delta) {
    if (delta.empty() || !IsCall()) return {};
    open_.text += delta;
    return ItemEvent(open_.kind == Item::kCustomCall ? "response.custom_tool_call_input.delta"
                                                     : "response.function_call_arguments.delta",
                     false, {{"delta", delta}});
  }

  // Ends the open item, if there is one. A message that a call follows was a comment on the way,
  // not the answer.
  std::string Close(std::string_view status, bool call_follows) {
    if (open_.kind == Item::kNone) return {};
    std::string bytes;
    if (open_.kind == Item::kCustomCall) {
      bytes += CallDelta(open_.custom.Finish());
      bytes += ItemEvent("response.custom_tool_call_input.done", false, {{"input", open_.text}});
    } else if (open_.kind == Item::kFunctionCall) {
      bytes += ItemEvent("response.function_call_arguments.done", false,
                         {{"name", open_.name}, {"arguments", open_.text}});
    } else {
      const bool reasoning = open_.kind == Item::kReasoning;
      JsonObject done = {{"text", open_.text}};
      if (!reasoning) done.emplace_back("logprobs", JsonArray());
      bytes += ItemEvent(reasoning ? "response.reasoning_text.done" : "response.output_text.done",
                         true, std::move(done));
      bytes += ItemEvent("response.content_part.done", true, {{"part", Part()}});
    }
    Json item = ItemJson(status, false);
    if (open_.kind == Item::kMessage) {
      item.Set("phase", call_follows ? "commentary" : "final_answer");
    }
    bytes += Event("response.output_item.done", {{"output_index", OutputIndex()}, {"item", item}});
    output_.push_back(std::move(item));
    open_ = Item();
    return bytes;
  }

  // Codex knows an answer's failure by response.failed, iterators of the SDKs by the event error.
  std::string Fail(const ApiError& error, Json usage) {
    const std::string code = FailureCode(error);
    std::string bytes;
    if (stream_ && !started_) bytes = Start({});
    bytes += Close("incomplete", false);
    const Json param = error.param.empty() ? Json() : Json(error.param);
    Json response = Response("failed", Json(JsonObject{{"code", code}, {"message", error.message}}),
                             std::move(usage));
    if (!stream_) return DumpJson(response, JsonStyle::kCompact);
    bytes += Event("error", {{"code", code}, {"message", error.message}, {"param", param}});
    return bytes += Event("response.failed", {{"response", std::move(response)}});
  }

  bool stream_;
  std::vector<std::string> custom_tools_;
  Json echo_fields_;
  AnswerIds ids_;
  bool started_ = false;
  int64_t sequence_number_ = 0;
  Item open_;
  JsonArray output_;  // the items that are complete
};

}  // namespace

std::unique_ptr<AnswerWriter> NewResponsesWriter(const ApiRequest& request, const AnswerIds& ids) {
  return std::make_unique<ResponsesWriter>(request, ids);
}

}  // namespace minke
