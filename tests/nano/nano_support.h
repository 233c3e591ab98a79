// The shipped model and the document of its demonstration.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "engine/engine.h"

namespace minke::testing {

inline const std::string kNano = MINKE_NANO_MODEL;
inline const std::string kDocumentPath =
    std::string(MINKE_SOURCE_DIR) + "/models/nano/document.txt";
inline constexpr uint64_t kDocumentBytesMax = uint64_t{1} << 20;

// The document, or its first paragraphs.
inline std::string Document(size_t paragraphs = 1000) {
  std::string text = ReadFile(kDocumentPath, kDocumentBytesMax).value();
  size_t end = 0;
  for (size_t i = 0; i < paragraphs && end != std::string::npos; ++i) {
    end = text.find("\n\n", end == 0 ? 0 : end + 2);
  }
  text = text.substr(0, end);
  return text.substr(0, text.find_last_not_of(" \n") + 1);
}

inline EngineOptions NanoOptions() {
  EngineOptions options;
  options.model_dir = kNano;
  options.threads = 2;
  return options;
}

inline std::unique_ptr<Engine> OpenNano(const EngineOptions& options = NanoOptions()) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  CHECK(engine.has_value(), engine.has_value() ? "" : engine.error().message);
  return std::move(engine).value();
}

// One user message in the format that the model was trained on.
inline std::vector<int32_t> PromptAbout(const Engine& engine, const std::string& document,
                                        const std::string& question) {
  Json message;
  message.Set("role", "user");
  message.Set("content", document + "\n\n" + question);
  const Json messages(JsonArray{message});
  ChatOptions options;
  options.thinking = false;
  return engine.EncodeChat(DumpJson(messages, JsonStyle::kCompact), "test", options).value().ids;
}

}  // namespace minke::testing
