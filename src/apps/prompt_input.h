// The prompt that --prompt or --messages names.
#pragma once

#include <string>
#include <string_view>

#include "apps/commands.h"
#include "core/result.h"
#include "engine/engine.h"

namespace minke {

// The text of a file that a question is about, without the blanks at its end. Errors name the file:
// it cannot be read, it is empty, it is no UTF-8.
Result<std::string> ReadDocument(const std::string& path);
// A message of both: the document, an empty line, the question.
std::string AskAbout(std::string_view document, std::string_view question);

// The text of the file that --messages or --document names; empty without these flags.
Result<std::string> ReadPromptFile(const PromptFlags& flags);
// `file_text`: what ReadPromptFile() returned.
Result<ChatPrompt> MakePrompt(const Engine& engine, const PromptFlags& flags,
                              const std::string& file_text);

}  // namespace minke
