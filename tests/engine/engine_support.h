// Engines over the golden models and prompts, for the tests of this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"

namespace minke::testing {

inline const std::string kChatModel = std::string(MINKE_GOLDEN_DIR) + "/chat";
inline const std::string kFullMini = std::string(MINKE_GOLDEN_DIR) + "/full_mini";
inline const std::string kMini = std::string(MINKE_SOURCE_DIR) + "/models/mini";

inline EngineOptions Options(const std::string& dir = kChatModel) {
  EngineOptions options;
  options.model_dir = dir;
  options.threads = 1;
  return options;
}

inline std::unique_ptr<Engine> Open(const EngineOptions& options = Options()) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return engine.has_value() ? std::move(engine).value() : nullptr;
}

inline std::string OpenError(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  return engine.has_value() ? std::string() : engine.error().message;
}

inline std::vector<int32_t> Prompt(size_t count) {
  std::vector<int32_t> ids = {0};
  while (ids.size() < count) ids.push_back(static_cast<int32_t>(3 + (ids.size() * 7919) % 470));
  return ids;
}

inline GenerationResult Generate(const Engine& engine, Session& session,
                                 const std::vector<int32_t>& ids,
                                 const GenerationOptions& options) {
  Result<GenerationResult> result = engine.Generate(session, ids, options);
  EXPECT_TRUE(result.has_value()) << result.error().message;
  return result.has_value() ? std::move(result).value() : GenerationResult();
}

inline GenerationOptions Greedy(int64_t max_tokens) {
  GenerationOptions options;
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  return options;
}

inline std::vector<int32_t> Concat(std::vector<int32_t> a, const std::vector<int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::vector<int32_t> FreshIds(const Engine& engine, const std::vector<int32_t>& prompt,
                                     const GenerationOptions& options) {
  return Generate(engine, *engine.NewSession(), prompt, options).ids;
}

}  // namespace minke::testing
