// Completions of a model, in both modes.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/output_parser.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const auto mode : {minke::ThinkingMode::kChat, minke::ThinkingMode::kThinking}) {
    const auto parsed = minke::ParseCompletion(input, mode);
    if (!parsed.has_value()) continue;
    // What is accepted ends where the model ended and shows no markup.
    CHECK(input.ends_with(minke::kEosToken));
    for (const std::string* text : {&parsed->content, &parsed->reasoning_content}) {
      CHECK(text->find(minke::kDsmlToken) == std::string::npos);
      CHECK(text->find(minke::kEosToken) == std::string::npos);
      CHECK(input.find(*text) != std::string_view::npos);
    }
    for (const minke::ParsedToolCall& call : parsed->tool_calls) {
      CHECK(call.arguments.front() == '{' && call.arguments.back() == '}');
    }
  }
  return 0;
}
