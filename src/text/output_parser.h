// Splits a whole completion into reasoning, answer and tool calls by the rules of the official
// encoder: well-formed output or an error (serving.md 2.7).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/control_tokens.h"

namespace minke {

struct ParsedToolCall {
  std::string tool_namespace;  // "" where the name has none
  std::string name;
  std::string arguments;  // the text of a JSON object; values the model wrote as JSON are verbatim

  bool operator==(const ParsedToolCall&) const = default;
};

struct ParsedCompletion {
  std::string reasoning_content;
  std::string content;
  std::vector<ParsedToolCall> tool_calls;

  bool operator==(const ParsedCompletion&) const = default;
};

// `text` is what follows the generation header, up to and including the end-of-sequence token.
// Errors say what is malformed, in the byte order of the text.
Result<ParsedCompletion> ParseCompletion(std::string_view text, ThinkingMode thinking_mode);

}  // namespace minke
