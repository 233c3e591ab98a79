// The prompt that --prompt or --messages names.
#pragma once

#include <string>

#include "apps/commands.h"
#include "core/result.h"
#include "engine/engine.h"

namespace minke {

// The text of the file that --messages names; empty without that flag.
Result<std::string> ReadMessages(const PromptFlags& flags);
// `messages`: what ReadMessages() returned.
Result<ChatPrompt> MakePrompt(const Engine& engine, const PromptFlags& flags,
                              const std::string& messages);

}  // namespace minke
