#include "engine/chat_prompt.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "text/chat_encoding.h"

namespace minke {
namespace {

// The request as an object, so that options of the caller can be set in the words of the request.
Result<Json> RequestObject(std::string_view text, std::string_view what,
                           const ChatOptions& options) {
  Json request = TRY(ParseJson(text, what));
  if (request.is_array()) {
    Json object;
    object.Set("messages", std::move(request));
    request = std::move(object);
  }
  if (!request.is_object()) {
    return Fail(
        fmt::format("{} must be an array of messages, or an object with \"messages\"; it "
                    "is a value of type {}.",
                    what, request.TypeName()));
  }
  if (options.thinking.has_value()) {
    request.Set("thinking_mode", *options.thinking ? "thinking" : "chat");
  }
  if (!options.effort.empty()) request.Set("reasoning_effort", options.effort);
  if (options.drop_thinking) request.Set("drop_thinking", true);
  return request;
}

Status SplitContext(ChatRequest& request, int64_t context_messages) {
  const auto count = static_cast<int64_t>(request.messages.size());
  if (context_messages < 0 || context_messages > count) {
    return Fail(fmt::format("The context must be between 0 and all {} messages, found {}.", count,
                            context_messages));
  }
  const auto middle = request.messages.begin() + context_messages;
  std::move(request.messages.begin(), middle, std::back_inserter(request.context));
  request.messages.erase(request.messages.begin(), middle);
  return {};
}

}  // namespace

Result<ChatPrompt> MakeChatPrompt(const Tokenizer& tokenizer, std::string_view json,
                                  std::string_view what, const ChatOptions& options) {
  const Json object = TRY(RequestObject(json, what, options));
  ChatRequest request = TRY(ParseChatRequest(object, what));
  TRY_STATUS(SplitContext(request, options.context_messages));
  const Prompt prompt = TRY(EncodeChat(request));
  ChatPrompt result;
  result.text = prompt.Text();
  result.ids = TRY(PromptIds(prompt, tokenizer));
  result.thinking = request.options.thinking_mode == ThinkingMode::kThinking;
  return result;
}

}  // namespace minke
