#include "apps/prompt_input.h"

#include <utility>

#include "apps/common.h"
#include "core/json.h"

namespace minke {
namespace {

Json Messages(const std::string& system, const std::string& user) {
  JsonArray messages;
  if (!system.empty()) {
    Json message;
    message.Set("role", "system");
    message.Set("content", system);
    messages.push_back(std::move(message));
  }
  Json message;
  message.Set("role", "user");
  message.Set("content", user);
  messages.push_back(std::move(message));
  return messages;
}

}  // namespace

Result<std::string> ReadMessages(const PromptFlags& flags) {
  if (!flags.messages.has_value()) return std::string();
  return ReadInput(*flags.messages, kMessagesBytesMax);
}

Result<ChatPrompt> MakePrompt(const Engine& engine, const PromptFlags& flags,
                              const std::string& messages) {
  if (flags.raw) {
    ChatPrompt prompt;
    prompt.text = *flags.prompt;
    prompt.ids = TRY(engine.TextPrompt(*flags.prompt));
    return prompt;
  }
  const ChatOptions options = MakeChatOptions(flags.thinking, flags.effort);
  if (flags.prompt.has_value()) {
    const Json question = Messages(flags.system, *flags.prompt);
    return engine.EncodeChat(DumpJson(question, JsonStyle::kCompact), "--prompt", options);
  }
  return engine.EncodeChat(messages, *flags.messages, options);
}

}  // namespace minke
