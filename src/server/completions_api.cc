// POST /completions: a text to go on with, or a gap between two texts to be filled (serving.md 1.2,
// 1.4). Never thinks.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api.h"
#include "server/api_fields.h"
#include "server/openai_shapes.h"
#include "text/utf8.h"

namespace minke {

namespace {

constexpr BodyTypeRule kCompletionBodyTypes[] = {
    {"model", kBodyText},
    {"prompt", kBodyText | kBodyList},
    {"suffix", kBodyText},
    {"echo", kBodyFlag},
    {"stream", kBodyFlag},
    {"stream_options", kBodyObject},
    {"stream_options.include_usage", kBodyFlag},
    {"stop", kBodyText | kBodyList},
    {"stop[]", kBodyText},
    {"max_tokens", kBodyInteger},
    {"temperature", kBodyNumber},
    {"top_p", kBodyNumber},
    {"presence_penalty", kBodyNumber},
    {"frequency_penalty", kBodyNumber},
    {"seed", kBodyInteger},
    {"n", kBodyInteger},
    {"best_of", kBodyInteger},
    {"logprobs", kBodyInteger},
    {"user_id", kBodyText},
    {"user", kBodyText},
};

ApiStatus ReadCompletionText(const Json& body, std::string* text) {
  const Json* prompt = BodyMember(body, "prompt");
  if (prompt == nullptr) {
    return RefuseBody("prompt", "prompt must be a text, but it is missing.");
  }
  if (prompt->is_array()) {
    // Some libraries wrap the one text in a list.
    const JsonArray& list = prompt->as_array();
    if (list.size() != 1 || !list[0].is_string()) {
      return RefuseBody("prompt",
                        "prompt must be one text; lists of texts and token ids are not "
                        "accepted.");
    }
    prompt = &list[0];
  }
  if (prompt->as_string().size() > kPromptBytesMax) {
    return RefuseBody("prompt", fmt::format("prompt has {} bytes; at most {} are accepted.",
                                            prompt->as_string().size(), kPromptBytesMax));
  }
  *text = prompt->as_string();
  return {};
}

int64_t CountCharacters(std::string_view bytes) {
  const auto begins_character = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  };
  return std::count_if(bytes.begin(), bytes.end(), begins_character);
}

class CompletionWriter : public AnswerWriter {
 public:
  CompletionWriter(const ApiRequest& request, const AnswerIds& ids)
      : ids_(ids),
        stream_(request.stream),
        include_usage_(request.include_usage),
        logprobs_wanted_(request.sampling.logprobs >= 0),
        echo_(request.echo ? request.prompt : "") {}

  std::string Start(const Usage& /*usage*/) override {
    characters_ = CountCharacters(echo_);
    return Text(echo_);
  }

  std::string Piece(const AnswerPiece& piece) override {
    using Kind = AnswerPiece::Kind;
    if (piece.kind != Kind::kContent && piece.kind != Kind::kReasoning) return {};
    return Text(piece.text);
  }

  void Logprob(const ApiLogprob& logprob, bool /*in_reasoning*/) override {
    if (!logprobs_wanted_) return;
    tokens_.push_back(Json(LossyUtf8(logprob.bytes)));
    token_logprobs_.push_back(Json(FiniteLogprob(logprob.logprob)));
    Json alternatives{JsonObject()};
    for (const auto& alternative : logprob.alternatives) {
      std::string text = LossyUtf8(alternative.first);
      // Two tokens may look the same; the better one, which comes first, stays.
      if (alternatives.Find(text) != nullptr) continue;
      alternatives.Set(std::move(text), FiniteLogprob(alternative.second));
    }
    top_logprobs_.push_back(std::move(alternatives));
    text_offsets_.push_back(Json(characters_));
    characters_ += CountCharacters(logprob.bytes);
  }

  std::string End(const AnswerEnd& end) override {
    const Json reason(std::string(OpenAiFinishReason(end.finish, false)));
    const Json usage = OpenAiUsage(end.usage);
    if (stream_) return SseData(Envelope("", reason, &usage)) + std::string(kSseDone);
    return DumpJson(Envelope(text_, reason, &usage), JsonStyle::kCompact);
  }

  std::string Error(const ApiError& error) override {
    const Json envelope = ErrorEnvelope(ApiFamily::kCompletions, error, "");
    if (!stream_) return DumpJson(envelope, JsonStyle::kCompact);
    return SseData(envelope) + std::string(kSseDone);
  }

  std::string KeepAlive(bool comments) override {
    if (!stream_) return "\n";
    return comments ? std::string(kSseComment) : SseData(Envelope("", Json(), nullptr));
  }

 private:
  std::string Text(const std::string& text) {
    if (text.empty()) return {};
    if (stream_) return SseData(Envelope(text, Json(), nullptr));
    text_ += text;
    return {};
  }

  Json TakeLogprobs() {
    if (tokens_.empty()) return Json();
    return Json(JsonObject{{"tokens", Json(std::exchange(tokens_, {}))},
                           {"token_logprobs", Json(std::exchange(token_logprobs_, {}))},
                           {"top_logprobs", Json(std::exchange(top_logprobs_, {}))},
                           {"text_offset", Json(std::exchange(text_offsets_, {}))}});
  }

  Json Envelope(const std::string& text, const Json& finish_reason, const Json* usage) {
    Json choice(JsonObject{{"index", 0}, {"text", text}});
    choice.Set("logprobs", TakeLogprobs());
    choice.Set("finish_reason", finish_reason);
    JsonArray choices;
    choices.push_back(std::move(choice));
    Json body(JsonObject{{"id", fmt::format("cmpl-{}", ids_.id)},
                         {"object", "text_completion"},
                         {"created", ids_.created},
                         {"model", ids_.model},
                         {"system_fingerprint", ids_.fingerprint},
                         {"choices", Json(std::move(choices))}});
    if (usage != nullptr) {
      body.Set("usage", *usage);
    } else if (include_usage_) {
      body.Set("usage", Json());
    }
    return body;
  }

  const AnswerIds ids_;
  const bool stream_;
  const bool include_usage_;
  const bool logprobs_wanted_;
  const std::string echo_;
  std::string text_;        // of an answer in one body
  int64_t characters_ = 0;  // of the text before the next token
  JsonArray tokens_;        // as all below: of tokens that were not shown yet
  JsonArray token_logprobs_;
  JsonArray top_logprobs_;
  JsonArray text_offsets_;
};

}  // namespace

ApiResult<ApiRequest> ReadCompletionsRequest(const Json& body, const ApiReadOptions& /*options*/) {
  ApiRequest request;
  request.family = ApiFamily::kCompletions;
  request.chat.options.thinking_mode = ThinkingMode::kChat;
  TRY_STATUS(CheckBodyTypes(body, kCompletionBodyTypes));
  if (const Json* model = BodyMember(body, "model")) request.model = model->as_string();
  TRY_STATUS(ReadCompletionText(body, &request.prompt));
  if (const Json* suffix = BodyMember(body, "suffix")) request.suffix = suffix->as_string();
  request.echo = BodyFlag(body, "echo");
  TRY_STATUS(ReadBodySampling(body, /*thinking=*/false, &request));
  int64_t alternatives = -1;
  TRY_STATUS(ReadBodyInteger(body, "logprobs", 0, kLogprobsMax, &alternatives));
  request.sampling.logprobs = static_cast<int>(alternatives);
  TRY_STATUS(ReadBodyMaxTokens(body, {"max_tokens"}, &request));
  TRY_STATUS(ReadBodyStop(body, "stop", &request.stop_strings));
  TRY_STATUS(ReadBodyStream(body, &request));
  TRY_STATUS(ReadBodyUser(body, {"user_id", "user"}, &request));
  TRY_STATUS(RefuseSeveralAnswers(body, "n"));
  TRY_STATUS(RefuseSeveralAnswers(body, "best_of"));
  return request;
}

Prompt CompletionPrompt(const ApiRequest& request) {
  using Kind = PromptPiece::Kind;
  Prompt prompt;
  const auto add = [&prompt](Kind kind, std::string_view text) {
    if (!text.empty()) prompt.pieces.push_back({kind, std::string(text)});
  };
  add(Kind::kControl, kBosToken);
  if (!request.suffix.has_value()) {
    add(Kind::kPlain, request.prompt);
    return prompt;
  }
  add(Kind::kControl, kFimBeginToken);
  add(Kind::kPlain, request.prompt);
  add(Kind::kControl, kFimHoleToken);
  add(Kind::kPlain, *request.suffix);
  add(Kind::kControl, kFimEndToken);
  return prompt;
}

std::unique_ptr<AnswerWriter> NewCompletionsWriter(const ApiRequest& request,
                                                   const AnswerIds& ids) {
  return std::make_unique<CompletionWriter>(request, ids);
}

}  // namespace minke
