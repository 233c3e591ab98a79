#include "apps/prompt_input.h"

#include <utility>

#include <fmt/format.h>

#include "apps/common.h"
#include "core/json.h"
#include "text/utf8.h"

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

Result<std::string> ReadDocument(const std::string& path) {
  std::string text = TRY(ReadInput(path, kMessagesBytesMax));
  const std::string name = path == "-" ? "Standard input" : path;
  const size_t valid = ValidUtf8Prefix(text);
  if (valid < text.size()) {
    return Fail(fmt::format("{} is no UTF-8 text: byte {} belongs to no character.", name, valid));
  }
  text.resize(text.find_last_not_of(" \n\t\r") + 1);  // npos + 1 is 0
  if (text.empty()) return Fail(fmt::format("{} has no text in it to ask about.", name));
  return text;
}

std::string AskAbout(std::string_view document, std::string_view question) {
  return std::string(document) + "\n\n" + std::string(question);
}

Result<std::string> ReadPromptFile(const PromptFlags& flags) {
  if (!flags.document.empty()) return ReadDocument(flags.document);
  if (!flags.messages.has_value()) return std::string();
  return ReadInput(*flags.messages, kMessagesBytesMax);
}

Result<ChatPrompt> MakePrompt(const Engine& engine, const PromptFlags& flags,
                              const std::string& file_text) {
  if (flags.raw) {
    ChatPrompt prompt;
    prompt.text = *flags.prompt;
    prompt.ids = TRY(engine.TextPrompt(*flags.prompt));
    return prompt;
  }
  const ChatOptions options = MakeChatOptions(flags.thinking, flags.effort);
  if (flags.prompt.has_value()) {
    const Json question = Messages(
        flags.system, flags.document.empty() ? *flags.prompt : AskAbout(file_text, *flags.prompt));
    return engine.EncodeChat(DumpJson(question, JsonStyle::kCompact), "--prompt", options);
  }
  return engine.EncodeChat(file_text, *flags.messages, options);
}

}  // namespace minke
