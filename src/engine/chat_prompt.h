// Chat requests as JSON text to prompts: the options of a caller set over those of the request.
#pragma once

#include <string_view>

#include "core/result.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace minke {

// Engine::EncodeChat() for a program that has a tokenizer but no model.
Result<ChatPrompt> MakeChatPrompt(const Tokenizer& tokenizer, std::string_view json,
                                  std::string_view what, const ChatOptions& options);

}  // namespace minke
