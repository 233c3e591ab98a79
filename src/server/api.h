// What the API families have in common: a checked request, and the parts of an answer. Each family
// has a file that reads its requests and a file that writes its answers (serving.md 1.4 to 1.6).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "engine/engine.h"
#include "text/answer_parser.h"
#include "text/chat_encoding.h"

namespace minke {

inline constexpr size_t kRequestBytesMax = size_t{48} << 20;  // bytes of a body
inline constexpr size_t kApiToolsMax = 1024;                  // tools of one request
inline constexpr size_t kApiStopStringsMax = 16;
inline constexpr int64_t kApiMaxTokensDefault = 8192;           // outside thinking mode
inline constexpr int64_t kApiMaxTokensThinkingDefault = 65536;  // in thinking mode
inline constexpr int64_t kApiMaxTokensMax = 393'216;

enum class ApiFamily { kChat, kCompletions, kResponses, kMessages };

// An error as an answer. Each family wraps it in its own envelope.
struct ApiError {
  int status = 400;
  std::string message;                         // for a person; agents recognise some of them
  std::string type = "invalid_request_error";  // as the OpenAI families spell it
  std::string param;                           // the field, e.g. messages[3].content; empty: null
  std::string code = "invalid_request_error";
  double retry_after_seconds = 0;  // 0: no such header
};
template <typename T>
using ApiResult = tl::expected<T, ApiError>;
using ApiStatus = ApiResult<void>;

// The envelope of the family: {"error": {...}}, for Messages {"type": "error", "error": {...},
// "request_id": ...}, whose types follow from the status.
Json ErrorEnvelope(ApiFamily family, const ApiError& error, std::string_view request_id);
// The same as the body of an answer.
std::string ErrorBody(ApiFamily family, const ApiError& error, std::string_view request_id);

// A 400 with the message of an error from below; `param` where the message begins with the place.
ApiError BadRequest(const Error& error);

// A request of any family, checked.
struct ApiRequest {
  ApiFamily family = ApiFamily::kChat;
  std::string model;  // as the client wrote it
  bool stream = false;
  bool include_usage = false;  // stream_options.include_usage
  // The prompt: a conversation, or for kCompletions a text with what is to follow it.
  ChatRequest chat;
  std::string prompt;
  std::optional<std::string> suffix;  // fill in the middle
  bool echo = false;
  SamplingOptions sampling;  // in thinking mode what the API says is ignored is ignored here
  bool has_seed = false;     // otherwise the server draws one for sampling.seed
  int64_t max_tokens = -1;   // -1: not said
  std::vector<std::string> stop_strings;
  std::string user_id;  // separates caches and shares; at most kTenantBytesMax bytes
  bool tools = false;   // declared and not switched off by tool_choice
  std::vector<std::string> tool_names;    // "name" or "namespace::name"
  std::vector<std::string> custom_tools;  // of tool_names, those of type custom (Responses)
  bool json_mode = false;
  // What of the request an answer repeats (Responses: instructions, tools, ...).
  Json echo_fields;

  // The answer has a place for reasoning, used or not.
  bool thinking() const { return chat.options.thinking_mode == ThinkingMode::kThinking; }
  // The prompt opens the reasoning, so the first token is part of it. Not so where a message that
  // has its reasoning is to go on (prefix completion).
  bool opens_reasoning() const {
    return thinking() && !chat.messages.empty() && !chat.messages.back().wo_eos;
  }
  // tool_choice "required" or a name: the prompt opened the block of calls (serving.md 2.6).
  bool in_calls() const {
    return tools && (chat.options.tool_choice.kind == ToolChoice::Kind::kRequired ||
                     chat.options.tool_choice.kind == ToolChoice::Kind::kNamed);
  }
  int64_t max_tokens_or_default() const {
    if (max_tokens > 0) return max_tokens;
    return thinking() && family != ApiFamily::kCompletions ? kApiMaxTokensThinkingDefault
                                                           : kApiMaxTokensDefault;
  }
};

// How many tokens the answer may have: what was asked for, which is an error where the context has
// no room for it, or else the default as far as there is room. The error is worded so that agents
// of the family recognise it and shorten their history (serving.md 1.6, 4.2).
ApiResult<int64_t> ResolveMaxTokens(const ApiRequest& request, int64_t prompt_tokens,
                                    int64_t context_tokens_max);

// What a request used and what it cost.
struct Usage {
  int64_t prompt_tokens = 0;  // hit + miss
  int64_t hit_tokens = 0;     // neither computed nor replayed
  int64_t miss_tokens = 0;
  int64_t completion_tokens = 0;  // reasoning included
  int64_t reasoning_tokens = 0;
  CacheUse cache;
  double cost = 0;       // in `currency`
  std::string currency;  // "USD"
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;

  // Minke's own detail, one member `minke` beside each family's usage: cached_ram_tokens,
  // cached_disk_tokens, replayed_tokens, computed_tokens, cache_tier, miss_reason,
  // first_difference (-1: unknown), cost, currency, queue_seconds, prefill_seconds, decode_seconds.
  Json Detail() const;
};

inline constexpr size_t kAnswerIdDigits = 32;  // hexadecimal

// What identifies an answer; made by the server, so that tests can fix it.
struct AnswerIds {
  std::string id;           // 32 hexadecimal digits; each family puts its prefixes before it
  int64_t created = 0;      // seconds since 1970
  std::string model;        // the name that the answer carries
  std::string fingerprint;  // system_fingerprint
  std::string request_id;   // that errors name
};

// The id by which clients of a family speak of a call; tool_index counts from zero.
std::string AnswerCallId(ApiFamily family, std::string_view answer_id, int tool_index);
// The id of the answer (AnswerIds::id) within what clients send back of it: an item of a response,
// a call, the signature of a thinking block. Empty where it is not of this form.
std::string AnswerIdIn(std::string_view text);

enum class AnswerFinish { kStop, kStopString, kLength, kToolCalls, kOverloaded };

struct AnswerEnd {
  AnswerFinish finish = AnswerFinish::kStop;
  std::string stop_string;  // for kStopString
  Usage usage;
};

// A token's logprobs with its text, for families that show them.
struct ApiLogprob {
  std::string bytes;
  double logprob = 0;
  std::vector<std::pair<std::string, double>> alternatives;  // best first
};

// Writes one answer in the shape of its family: as a stream, the bytes to be sent now; otherwise
// nothing until End(), which gives the whole body. Calls come in the order Start, Piece*, then End
// or Error.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  // `usage`: what is known when the prompt has been looked up: prompt, hit and miss tokens.
  virtual std::string Start(const Usage& usage) = 0;
  virtual std::string Piece(const AnswerPiece& piece) = 0;
  // Logprobs of the token whose pieces follow; families without them ignore it.
  virtual void Logprob(const ApiLogprob& /*logprob*/, bool /*in_reasoning*/) {}
  virtual std::string End(const AnswerEnd& end) = 0;
  // An error after the start: in a stream an event and its end, otherwise the body of an error.
  virtual std::string Error(const ApiError& error) = 0;
  // What keeps an idle connection open: a comment or an event in a stream, else an empty line.
  // `comments`: comments of SSE are wanted (some clients fail on them, 6.F 93).
  virtual std::string KeepAlive(bool comments) = 0;
};

// What the server's flags say about reading requests.
struct ApiReadOptions {
  // Refuses what the hosted service refuses: in thinking mode an assistant turn replayed without
  // its reasoning once tool calls are in the history (serving.md 1.4).
  bool strict_reasoning = false;
};

// Each reads the body of a request. Errors name the field. In chat_api.cc, completions_api.cc,
// responses_api.cc and messages_api.cc.
ApiResult<ApiRequest> ReadChatRequest(const Json& body, const ApiReadOptions& options);
ApiResult<ApiRequest> ReadCompletionsRequest(const Json& body, const ApiReadOptions& options);
ApiResult<ApiRequest> ReadResponsesRequest(const Json& body, const ApiReadOptions& options);
ApiResult<ApiRequest> ReadMessagesRequest(const Json& body, const ApiReadOptions& options);

// The prompt of a completion: the begin-of-sequence token and the text, or the text and what is to
// follow it between the marks of filling in (serving.md 8).
Prompt CompletionPrompt(const ApiRequest& request);

std::unique_ptr<AnswerWriter> NewChatWriter(const ApiRequest& request, const AnswerIds& ids);
std::unique_ptr<AnswerWriter> NewCompletionsWriter(const ApiRequest& request, const AnswerIds& ids);
std::unique_ptr<AnswerWriter> NewResponsesWriter(const ApiRequest& request, const AnswerIds& ids);
std::unique_ptr<AnswerWriter> NewMessagesWriter(const ApiRequest& request, const AnswerIds& ids);

}  // namespace minke
