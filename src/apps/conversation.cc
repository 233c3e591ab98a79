#include "apps/conversation.h"

#include <algorithm>
#include <utility>

#include "text/control_tokens.h"

namespace minke {
namespace {

Json Message(const char* role, const std::string& content) {
  Json message;
  message.Set("role", role);
  message.Set("content", content);
  return message;
}

}  // namespace

Conversation::Conversation(const Engine& engine, std::string system, ChatOptions options)
    : engine_(engine), system_(std::move(system)), options_(std::move(options)) {
  Reset();
}

void Conversation::Reset() {
  session_ = engine_.NewSession();
  messages_.clear();
  ids_.clear();
}

Result<GenerationResult> Conversation::Ask(const std::string& question,
                                           const GenerationOptions& options) {
  JsonArray messages = messages_;
  if (messages.empty() && !system_.empty()) messages.push_back(Message("system", system_));
  messages.push_back(Message("user", question));
  ChatOptions chat_options = options_;
  chat_options.context_messages = static_cast<int64_t>(messages_.size());
  const ChatPrompt turn = TRY(engine_.EncodeChat(DumpJson(Json(messages), JsonStyle::kCompact),
                                                 "the conversation", chat_options));
  std::vector<int32_t> prompt = ids_;
  prompt.insert(prompt.end(), turn.ids.begin(), turn.ids.end());
  GenerationResult result = TRY(engine_.Generate(*session_, prompt, options));

  ids_ = std::move(prompt);
  CloseAnswer(turn.thinking, result);
  Json answer = Message("assistant", result.answer);
  if (turn.thinking) answer.Set("reasoning_content", result.reasoning);
  messages_ = std::move(messages);
  messages_.push_back(std::move(answer));
  return result;
}

void Conversation::CloseAnswer(bool thinking, const GenerationResult& result) {
  ids_.insert(ids_.end(), result.ids.begin(), result.ids.end());
  const std::optional<int32_t> think_end = engine_.ControlToken(kThinkEndToken);
  const bool closed = think_end.has_value() && std::find(result.ids.begin(), result.ids.end(),
                                                         *think_end) != result.ids.end();
  if (thinking && !closed && think_end.has_value()) {
    // An end-of-sequence token inside the thinking would have ended both.
    if (!result.ids.empty() && ids_.back() == engine_.eos_token()) ids_.pop_back();
    ids_.push_back(*think_end);
  }
  if (result.ids.empty() || ids_.back() != engine_.eos_token()) ids_.push_back(engine_.eos_token());
}

}  // namespace minke
