// Writes the answers of POST /chat/completions (serving.md 1.5).
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api.h"
#include "server/openai_shapes.h"
#include "server/tool_list.h"
#include "text/utf8.h"

namespace minke {

namespace {

Json ChatTokenLogprob(std::string_view bytes, double logprob) {
  JsonArray numbers;
  for (const char byte : bytes) numbers.push_back(Json(int{static_cast<unsigned char>(byte)}));
  return Json(JsonObject{{"token", LossyUtf8(bytes)},
                         {"logprob", FiniteLogprob(logprob)},
                         {"bytes", Json(std::move(numbers))}});
}

class ChatWriter : public AnswerWriter {
 public:
  ChatWriter(const ApiRequest& request, const AnswerIds& ids)
      : ids_(ids),
        stream_(request.stream),
        thinking_(request.thinking()),
        include_usage_(request.include_usage),
        logprobs_wanted_(request.sampling.logprobs >= 0) {}

  std::string Start(const Usage& /*usage*/) override {
    if (!stream_) return {};
    Json delta;
    delta.Set("role", "assistant");
    delta.Set("content", thinking_ ? Json() : Json(""));
    if (thinking_) delta.Set("reasoning_content", "");
    return Chunk(std::move(delta), Json(), nullptr);
  }

  std::string Piece(const AnswerPiece& piece) override {
    using Kind = AnswerPiece::Kind;
    const bool is_text = piece.kind != Kind::kToolCall;
    if (is_text && piece.text.empty()) return {};
    switch (piece.kind) {
      case Kind::kReasoning:
        return Text(piece.text, true);
      case Kind::kContent:
        return Text(piece.text, false);
      case Kind::kToolCall:
        return BeginCall(piece);
      case Kind::kToolArguments:
        return Arguments(piece);
      case Kind::kToolCallEnd:
        return {};
    }
    return {};
  }

  void Logprob(const ApiLogprob& logprob, bool in_reasoning) override {
    if (!logprobs_wanted_) return;
    Json entry = ChatTokenLogprob(logprob.bytes, logprob.logprob);
    JsonArray alternatives;
    for (const auto& alternative : logprob.alternatives) {
      alternatives.push_back(ChatTokenLogprob(alternative.first, alternative.second));
    }
    entry.Set("top_logprobs", Json(std::move(alternatives)));
    JsonArray& due = in_reasoning && thinking_ ? reasoning_logprobs_ : content_logprobs_;
    due.push_back(std::move(entry));
  }

  std::string End(const AnswerEnd& end) override {
    const Json reason(std::string(OpenAiFinishReason(end.finish, calls_begun_ > 0)));
    const Json usage = OpenAiUsage(end.usage);
    if (!stream_) return Body(reason, usage);
    Json delta;
    delta.Set("content", "");
    if (thinking_) delta.Set("reasoning_content", Json());
    // No chunk of its own for the usage: it rides on the last one (serving.md 1.5).
    return Chunk(std::move(delta), reason, &usage) + std::string(kSseDone);
  }

  std::string Error(const ApiError& error) override {
    const Json envelope = ErrorEnvelope(ApiFamily::kChat, error, "");
    if (!stream_) return DumpJson(envelope, JsonStyle::kCompact);
    return SseData(envelope) + std::string(kSseDone);
  }

  std::string KeepAlive(bool comments) override {
    if (!stream_) return "\n";
    if (comments) return std::string(kSseComment);
    return Chunk(Json(JsonObject()), Json(), nullptr, false);
  }

 private:
  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };

  std::string Text(const std::string& text, bool in_reasoning) {
    if (!stream_) {
      (in_reasoning ? reasoning_ : content_) += text;
      return {};
    }
    Json delta;
    delta.Set("content", in_reasoning ? Json() : Json(text));
    // A client that asked for no reasoning is not told that there is such a member.
    if (thinking_ || in_reasoning) {
      delta.Set("reasoning_content", in_reasoning ? Json(text) : Json());
    }
    return Chunk(std::move(delta), Json(), nullptr);
  }

  std::string BeginCall(const AnswerPiece& piece) {
    ++calls_begun_;
    Call call;
    call.id = AnswerCallId(ApiFamily::kChat, ids_.id, piece.tool_index);
    call.name = QualifiedToolName(piece.tool_namespace, piece.name);
    if (!stream_) {
      calls_.push_back(std::move(call));
      return {};
    }
    Json entry(JsonObject{{"index", piece.tool_index}});
    SetCall(call, &entry);
    return CallChunk(std::move(entry));
  }

  std::string Arguments(const AnswerPiece& piece) {
    if (!stream_) {
      if (!calls_.empty()) calls_.back().arguments += piece.text;
      return {};
    }
    Json entry(JsonObject{{"index", piece.tool_index}});
    entry.Set("function", Json(JsonObject{{"arguments", piece.text}}));
    return CallChunk(std::move(entry));
  }

  static void SetCall(const Call& call, Json* entry) {
    entry->Set("id", call.id);
    entry->Set("type", "function");
    entry->Set("function", Json(JsonObject{{"name", call.name}, {"arguments", call.arguments}}));
  }

  std::string CallChunk(Json entry) {
    JsonArray calls;
    calls.push_back(std::move(entry));
    return Chunk(Json(JsonObject{{"tool_calls", Json(std::move(calls))}}), Json(), nullptr);
  }

  // The logprobs of the tokens since the last chunk; null where none are due.
  Json TakeLogprobs() {
    if (content_logprobs_.empty() && reasoning_logprobs_.empty()) return Json();
    Json taken;
    taken.Set("content",
              content_logprobs_.empty() ? Json() : Json(std::exchange(content_logprobs_, {})));
    if (thinking_) {
      taken.Set("reasoning_content", reasoning_logprobs_.empty()
                                         ? Json()
                                         : Json(std::exchange(reasoning_logprobs_, {})));
    }
    return taken;
  }

  Json Envelope(std::string_view object, Json choice) const {
    JsonArray choices;
    choices.push_back(std::move(choice));
    return Json(JsonObject{{"id", fmt::format("chatcmpl-{}", ids_.id)},
                           {"object", std::string(object)},
                           {"created", ids_.created},
                           {"model", ids_.model},
                           {"system_fingerprint", ids_.fingerprint},
                           {"choices", Json(std::move(choices))}});
  }

  std::string Chunk(Json delta, Json finish_reason, const Json* usage, bool takes_logprobs = true) {
    Json choice(JsonObject{{"index", 0}, {"delta", std::move(delta)}});
    choice.Set("logprobs", takes_logprobs ? TakeLogprobs() : Json());
    choice.Set("finish_reason", std::move(finish_reason));
    Json chunk = Envelope("chat.completion.chunk", std::move(choice));
    if (usage != nullptr) {
      chunk.Set("usage", *usage);
    } else if (include_usage_) {
      chunk.Set("usage", Json());
    }
    return SseData(chunk);
  }

  std::string Body(const Json& finish_reason, const Json& usage) {
    Json message(JsonObject{{"role", "assistant"}, {"content", content_}});
    if (thinking_ || !reasoning_.empty()) message.Set("reasoning_content", reasoning_);
    if (!calls_.empty()) {
      JsonArray calls;
      for (size_t i = 0; i < calls_.size(); ++i) {
        Json entry(JsonObject{{"index", static_cast<int64_t>(i)}});
        SetCall(calls_[i], &entry);
        calls.push_back(std::move(entry));
      }
      message.Set("tool_calls", Json(std::move(calls)));
    }
    Json choice(JsonObject{{"index", 0}, {"message", std::move(message)}});
    choice.Set("logprobs", TakeLogprobs());
    choice.Set("finish_reason", finish_reason);
    Json body = Envelope("chat.completion", std::move(choice));
    body.Set("usage", usage);
    return DumpJson(body, JsonStyle::kCompact);
  }

  const AnswerIds ids_;
  const bool stream_;
  const bool thinking_;
  const bool include_usage_;
  const bool logprobs_wanted_;
  int calls_begun_ = 0;
  std::string reasoning_;  // as all below: of an answer in one body
  std::string content_;
  std::vector<Call> calls_;
  JsonArray content_logprobs_;  // of tokens that no chunk has shown yet
  JsonArray reasoning_logprobs_;
};

}  // namespace

std::unique_ptr<AnswerWriter> NewChatWriter(const ApiRequest& request, const AnswerIds& ids) {
  return std::make_unique<ChatWriter>(request, ids);
}

}  // namespace minke
